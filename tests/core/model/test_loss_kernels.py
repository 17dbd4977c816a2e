"""Cross entropy by the Triton kernel against torch's in fp64."""

from __future__ import annotations

import pytest
import torch

from support import loss_cases
from support.triton_kernels import check_program, compile_only, interpreted


def check(apart: dict[str, float], *, dtype: torch.dtype) -> None:
    """Logits go up to 300, so that fp32 knows their shares to 2e-5; gradients are at most 1, a unit of bf16 is 4e-3."""
    assert apart["loss"] < 1e-6  # measured: 1e-7
    tolerance = {torch.float32: 2e-5, torch.float16: 1e-3, torch.bfloat16: 5e-3}[dtype]
    assert apart["gradient"] < tolerance and apart["gradient with z"] < tolerance
    assert apart["added"] < 1e-6
    assert apart["scored"] == apart["kept"] == apart["predictions"] == apart["loss with z"] == 0


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = interpreted("support.loss_cases")
    return results


@pytest.mark.parametrize("case", loss_cases.CASES)
def test_losses_and_gradients_are_those_of_cross_entropy(found, case):
    check(found[case], dtype=loss_cases.CASES[case][0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", loss_cases.CASES)
def test_losses_and_gradients_on_a_gpu_are_those_of_cross_entropy(case):
    check(loss_cases.differences(case, "cuda"), dtype=loss_cases.CASES[case][0])


@pytest.mark.parametrize("case", loss_cases.CASES)
def test_the_kernel_compiles_for_an_h100(case, monkeypatch):
    pytest.importorskip("triton", reason="triton is not installed")
    from kosmos.model import loss_kernels

    made = compile_only(loss_kernels._cross_entropy_kernel, monkeypatch)
    given, targets = loss_cases.logits(*loss_cases.CASES[case])
    losses, given = torch.empty(len(given)), loss_cases.padded(given)
    loss_kernels.cross_entropy_(given, targets, losses, None, True, None, 0.0)
    loss_kernels.cross_entropy_(given, targets, losses, torch.empty_like(targets), False, None, 0.0)
    loss_kernels.cross_entropy_(given, targets, losses, None, True, torch.empty_like(losses), 1e-4)
    assert len(made) == 3
    for program in made:
        check_program(program)
        assert program.asm["ptx"].count("ld.global.b") <= 2  # the target and its logit; all others several at once
