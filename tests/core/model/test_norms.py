"""Norms and rotations as they are computed on a CPU, against torch's own composition."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kosmos import load_plugins, make_run
from kosmos.compose import compose
from kosmos.model.norms import LayerNorm, RMSNorm, SummedLayerNorm, sum_in_fp32
from kosmos.model.rotary import rotate, rotation


def test_the_rms_norm_and_its_gradients_are_those_of_torch() -> None:
    torch.manual_seed(0)
    norm, x = RMSNorm(12).double(), torch.randn(5, 3, 12, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        norm.weight.normal_()
    upstream = torch.randn(5, 3, 12, dtype=torch.float64)
    expected = F.rms_norm(x, (12,), norm.weight, norm.eps)
    got = norm(x)
    torch.testing.assert_close(got, expected)
    parts = (x, norm.weight)
    torch.testing.assert_close(
        torch.autograd.grad(got, parts, upstream), torch.autograd.grad(expected, parts, upstream)
    )


@pytest.mark.parametrize("narrow", [False, True], ids=["fp32 weights", "bf16 weights"])
def test_a_layer_norm_of_many_rows_in_bf16_gets_the_gradients_of_fp32(narrow: bool) -> None:
    """PyTorch alone gives its bias an eighth."""
    torch.manual_seed(0)
    norm, x = nn.LayerNorm(16), torch.randn(8192, 16).bfloat16()
    norm = norm.bfloat16() if narrow else norm
    upstream = 1 + 0.1 * torch.randn(8192, 16)

    def run(given: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=x.dtype == torch.bfloat16):
            out = given(x)
        return out.detach(), list(torch.autograd.grad((out.float() * upstream).sum(), [x, *given.parameters()]))

    plain, _ = run(norm, x)
    _, expected = run(copy.deepcopy(norm).float(), x.float())
    model = nn.Sequential(norm)
    sum_in_fp32(model)
    out, (of_x, *found) = run(norm, x)
    torch.testing.assert_close(out, plain, rtol=0.01, atol=1e-3)  # the last digit of bf16
    torch.testing.assert_close(of_x.float(), expected[0], rtol=0.02, atol=0.02)  # upstream is rounded, and near to even
    for got, wanted in zip(found, expected[1:], strict=True):
        assert (got.float() - wanted).norm() < 0.01 * wanted.norm()
    with torch.no_grad():
        assert torch.equal(model(x), plain)


def test_no_norm_of_a_model_that_trains_sums_in_bf16() -> None:
    """Neither those of encoders from libraries."""
    run = make_run({"modalities": ["audio"], "streams": {"audio": {"encoder": "conformer", "connector": "resampler"}}})
    model = compose(run, load_plugins(), draw=False).model
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) > 20
    assert {type(norm) for norm in norms} == {SummedLayerNorm}


@pytest.mark.parametrize("swapped", [(0, 1), (1, 2)])
def test_a_gradient_of_any_strides_goes_through_the_rms_norm(swapped: tuple[int, int]) -> None:
    torch.manual_seed(0)
    norm, x = RMSNorm(12).double(), torch.randn(5, 3, 12, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(5, 3, 12, dtype=torch.float64)
    strided = upstream.transpose(*swapped).contiguous().transpose(*swapped)
    assert not strided.is_contiguous()
    parts = (x, norm.weight)
    torch.testing.assert_close(
        torch.autograd.grad(norm(x), parts, strided), torch.autograd.grad(norm(x), parts, upstream)
    )


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows_and_rows_of_zeros_are_finite(rows: int) -> None:
    norm, x = RMSNorm(4), torch.zeros(rows, 4, requires_grad=True)
    norm(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert norm.weight.grad is not None


@pytest.mark.parametrize("kind", [RMSNorm, LayerNorm])
def test_norms_are_computed_in_fp32_and_return_what_products_take(kind: type[RMSNorm | LayerNorm]) -> None:
    norm, x = kind(64), torch.randn(3, 64) * 1e3
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast = norm(x)
    assert under_autocast.dtype == torch.bfloat16
    assert torch.equal(under_autocast, norm(x).to(torch.bfloat16))
    assert norm(x).dtype == torch.float32
    assert norm(x.bfloat16()).dtype == torch.bfloat16


def _plain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


@pytest.mark.parametrize("kind", ["rope", "xpos"])
def test_rotations_and_their_gradients_are_those_of_the_formula(kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(7, 2, 8, dtype=torch.float64, requires_grad=True)
    table = rotation(torch.arange(7), 8, kind, base=100.0, middle=3, dtype=torch.float64)  # type: ignore[arg-type]
    upstream = torch.randn(7, 2, 8, dtype=torch.float64)
    for cos_sin in table:
        got, expected = rotate(x, cos_sin), _plain(x, *cos_sin)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(torch.autograd.grad(got, x, upstream), torch.autograd.grad(expected, x, upstream))


def test_a_rotation_of_bf16_is_computed_and_returned_in_the_tables_type() -> None:
    x = torch.randn(5, 2, 8).bfloat16().requires_grad_()
    out = rotate(x, rotation(torch.arange(5), 8, "rope", base=100.0, middle=0).query)
    out.sum().backward()
    assert out.dtype == torch.float32
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("kind", ["norm", "rotation"])
def test_gradients_of_gradients_are_refused(kind: str) -> None:
    """Through what is made without autograd they would be wrong."""
    x = torch.randn(5, 2, 8, requires_grad=True)
    out = RMSNorm(8)(x) if kind == "norm" else rotate(x, rotation(torch.arange(5), 8, "rope", base=9.0, middle=0).query)
    (gradient,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()
