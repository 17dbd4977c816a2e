"""Lion's Triton kernel compiles; that it takes the right step is shown in ``test_backends``."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kosmos.runtime import devices
from kosmos.testing.fake_gpu import CUDA, fake_gpu
from kosmos.train.optim.lion import Lion
from kosmos.train.optim.operands import Step
from support.backends import CASES, operands
from support.triton_kernels import check_program, compile_only


@pytest.mark.parametrize("case", CASES)
def test_the_kernel_compiles_for_an_h100(case, monkeypatch):
    pytest.importorskip("triton", reason="triton is not installed")
    from kosmos.train.optim import kernels

    made = compile_only(kernels._lion_kernel, monkeypatch)
    dtype, block, low, stochastic = CASES[case]
    kernels.lion(operands(dtype, block, low), Step(1e-3, 0.1, 0.9, 0.99, 4_000_000_000, stochastic))
    [program] = made
    check_program(program)


@pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch knows no CUDA")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_parameters_of_a_gpu_take_their_step_together(dtype, monkeypatch):
    pytest.importorskip("triton", reason="triton is not installed")
    from kosmos.train.optim import kernels

    alone: list[torch.Size] = []
    monkeypatch.setattr(kernels, "lion", lambda operands, step: alone.append(operands.weight.shape))
    with fake_gpu() as gpu:
        shapes = [(300, 300), *((width,) for width in range(1, 200))]
        parameters = [nn.Parameter(torch.zeros(shape, device=CUDA, dtype=dtype)) for shape in shapes]
        optimizer = Lion(parameters, 1e-3, weight_decay=0.1)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    assert alone == [(90_000,)]
    assert gpu.waits == []


def test_who_trains_on_a_gpu_without_a_compiler_is_told(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    devices.has_triton.cache_clear()
    try:
        assert "gcc or clang" in (devices.slower_without_triton(CUDA) or "")
        assert devices.slower_without_triton(torch.device("cpu")) is None
    finally:
        devices.has_triton.cache_clear()
