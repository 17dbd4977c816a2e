"""Lion's Triton kernel compiles; that it takes the right step is shown in ``test_backends``."""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from kosmos.runtime import devices
from kosmos.testing.fake_gpu import CUDA, fake_gpu
from kosmos.train.optim.lion import Lion
from kosmos.train.optim.operands import Step
from support import lion_on_a_gpu
from support.backends import CASES, operands
from support.triton_kernels import check_program, compile_only, interpreted


@pytest.mark.parametrize("case", CASES)
def test_the_kernel_compiles_for_an_h100(case, monkeypatch):
    pytest.importorskip("triton", reason="triton is not installed")
    from kosmos.train.optim import kernels

    made = compile_only(kernels._lion_kernel, monkeypatch)
    dtype, block, low, stochastic = CASES[case]
    whole = operands(dtype, block, low)
    table = kernels.Table(kernels.kind_of(whole), [whole] * 3)
    keys = np.array([4_000_000_000] * 3, dtype=np.uint64)
    table.lion([whole.gradient.data_ptr()] * 3, keys, Step(1e-3, 0.1, 0.9, 0.99, stochastic=stochastic))
    [program] = made
    check_program(program)
    assert "ld.global.v4" in program.asm["ptx"]  # what is aligned is read 16 bytes at a time


@pytest.mark.parametrize("case", lion_on_a_gpu.CASES)
def test_steps_on_a_gpu_are_those_of_the_passes_and_their_tables_are_kept(steps, case):
    found = steps[case]
    assert found["weights"] < 1e-7  # a rounding of fp32; measured: 3e-8
    # At first, with a gradient that is not aligned, the next that is, two states that were loaded, and none.
    assert found["made"] == (7 if case == "not contiguous" else 6)


@pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch knows no CUDA")
def test_a_step_on_a_gpu_waits_for_nothing_and_launches_once_for_each_kind(monkeypatch):
    pytest.importorskip("triton", reason="triton is not installed")
    from kosmos.train.optim import kernels

    launched: list[int] = []
    monkeypatch.setattr(kernels, "current", lambda device: nullcontext())
    monkeypatch.setattr(torch.Tensor, "data_ptr", lambda tensor: 512)  # a GPU that computes nothing has no addresses
    monkeypatch.setattr(kernels, "_lion_kernel", defaultdict(lambda: lambda *given, **more: launched.append(1)))
    with fake_gpu() as gpu:
        shapes = [(300, 320), (0, 7), (64,), (640, 256), *((16 * width,) for width in range(1, 9))]
        parameters = [nn.Parameter(torch.zeros(shape, device=CUDA)) for shape in shapes]
        optimizer = Lion(parameters, 1e-3, weight_decay=0.1, block=256)
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            optimizer.step()
    assert len(launched) == 2 * 3  # vectors, and matrices by their block
    assert gpu.waits == []


@pytest.fixture(scope="module")
def steps() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = interpreted("support.lion_on_a_gpu")
    return found


def test_who_trains_on_a_gpu_without_a_compiler_is_told(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    devices.has_triton.cache_clear()
    try:
        assert "gcc or clang" in (devices.slower_without_triton(CUDA) or "")
        assert devices.slower_without_triton(torch.device("cpu")) is None
    finally:
        devices.has_triton.cache_clear()
