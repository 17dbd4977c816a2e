"""The Triton kernel is a program of a GPU, made here without one: its interpreter takes more than its compiler does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kosmos.train.optim.operands import Step
from support.backends import CASES, operands

pytest.importorskip("triton", reason="triton is not installed")

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import MockTensor


class H100:
    """What Triton asks of a GPU before it compiles for it."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.fixture
def compiled(monkeypatch) -> list[Any]:
    """Programs that launching the kernel makes; none is run."""
    from kosmos.train.optim import kernels

    made: list[Any] = []
    run = kernels._lion_kernel.run

    def compile_only(*given: Any, warmup: bool, **options: Any) -> None:
        types = [MockTensor.wrap_dtype(x.dtype) if isinstance(x, torch.Tensor) else x for x in given]
        made.append(run(*types, warmup=True, **options))

    monkeypatch.setattr(kernels._lion_kernel, "run", compile_only)
    monkeypatch.setattr(driver, "_active", H100())
    return made


@pytest.mark.parametrize("case", CASES)
def test_the_kernel_compiles_for_an_h100(compiled, case):
    from kosmos.train.optim import kernels

    dtype, block, low, stochastic = CASES[case]
    kernels.lion(operands(dtype, block, low), Step(1e-3, 0.1, 0.9, 0.99, 4_000_000_000, stochastic))
    [program] = compiled
    assert program.asm["cubin"]
    assert b"sm_90" in program.asm["ptx"].encode()
