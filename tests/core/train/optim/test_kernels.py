"""Lion's Triton kernel compiles; that it takes the right step is shown in ``test_backends``."""

from __future__ import annotations

import pytest

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
