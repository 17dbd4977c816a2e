"""The chunked loss against ``F.cross_entropy`` over all logits at once."""

from __future__ import annotations

import shutil

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kosmos.model import loss
from kosmos.model.loss import linear_cross_entropy

needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")

# Relative errors against F.cross_entropy in fp64; measured 6e-16, 2.5e-7 and 4.3e-3, the worst in the gradients.
TOLERANCES = {torch.float64: 1e-14, torch.float32: 2e-6, torch.bfloat16: 2e-2}


def inputs(n: int, dtype: torch.dtype, *, vocabulary: int = 50, width: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(n)
    hidden = torch.randn(n, width, dtype=dtype, requires_grad=True)
    weight = torch.randn(vocabulary, width, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(vocabulary, (n,))


def error(got: Tensor | None, expected: Tensor | None) -> float:
    assert got is not None
    assert expected is not None
    got, expected = got.detach().double(), expected.detach().double()
    return float((got - expected).norm() / expected.norm())


@pytest.mark.parametrize("chunk", [None, 7])
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_z_adds_the_squares_of_logsumexp_and_their_gradients(dtype: torch.dtype, chunk: int | None) -> None:
    hidden, weight, targets = inputs(40, dtype)
    got = linear_cross_entropy(hidden, weight, targets, z=0.1, chunk=chunk)
    (3 * got.total).backward()
    exact_hidden, exact_weight = (x.detach().double().requires_grad_() for x in (hidden, weight))
    logits = exact_hidden @ exact_weight.T
    losses = F.cross_entropy(logits, targets, reduction="none")
    expected = (losses + 0.1 * logits.logsumexp(1).square()).sum()
    (3 * expected).backward()
    for mine, exact in (
        (got.total, expected),
        (got.per_token, losses),
        (hidden.grad, exact_hidden.grad),
        (weight.grad, exact_weight.grad),
    ):
        assert error(mine, exact) < TOLERANCES[dtype]
    with torch.no_grad():  # what is scored is the loss alone
        assert error(linear_cross_entropy(hidden, weight, targets, z=0.1).total, losses.sum()) < TOLERANCES[dtype]


@pytest.mark.parametrize("by_kernels", [False, pytest.param(True, marks=needs_compiler)])
@pytest.mark.parametrize("z", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [None, 7])
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_weights_multiply_each_loss_and_its_gradients(
    dtype: torch.dtype, chunk: int | None, z: float, by_kernels: bool
) -> None:
    hidden, weight, targets = inputs(40, dtype)
    weights = torch.linspace(-1, 3, 40)
    got = linear_cross_entropy(hidden, weight, targets, weights=weights, z=z, chunk=chunk, by_kernels=by_kernels)
    (3 * got.total).backward()
    exact_hidden, exact_weight = (x.detach().double().requires_grad_() for x in (hidden, weight))
    logits = exact_hidden @ exact_weight.T
    losses = F.cross_entropy(logits, targets, reduction="none")
    expected = ((losses + z * logits.logsumexp(1).square()) * weights).sum()
    (3 * expected).backward()
    assert error(got.per_token, losses) < TOLERANCES[dtype]  # told as they are
    for mine, exact in ((got.total, expected), (hidden.grad, exact_hidden.grad), (weight.grad, exact_weight.grad)):
        assert error(mine, exact) < TOLERANCES[dtype]


@pytest.mark.parametrize("chunk", [None, 1, 7, 40])
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_loss_and_gradients_equal_those_of_cross_entropy(dtype: torch.dtype, chunk: int | None) -> None:
    hidden, weight, targets = inputs(40, dtype)
    got = linear_cross_entropy(hidden, weight, targets, chunk=chunk)
    (3 * got.total).backward()
    exact_hidden, exact_weight = (x.detach().double().requires_grad_() for x in (hidden, weight))
    logits = exact_hidden @ exact_weight.T
    expected = F.cross_entropy(logits, targets, reduction="none")
    (3 * expected.sum()).backward()
    assert got.total.dtype == got.per_token.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert error(got.total, expected.sum()) < TOLERANCES[dtype]
    assert error(got.per_token, expected) < TOLERANCES[dtype]
    assert hidden.grad is not None
    assert weight.grad is not None
    assert hidden.grad.dtype == weight.grad.dtype == dtype
    assert error(hidden.grad, exact_hidden.grad) < TOLERANCES[dtype]
    assert error(weight.grad, exact_weight.grad) < TOLERANCES[dtype]
    with torch.no_grad():
        scored = linear_cross_entropy(hidden, weight, targets, chunk=chunk)
    assert torch.equal(scored.per_token, got.per_token)
    if dtype != torch.bfloat16:
        assert torch.equal(scored.predictions, logits.argmax(1))
    assert got.predictions.shape == (0,)  # training does not ask for them


def test_no_positions_give_a_loss_of_zero_with_a_graph() -> None:
    hidden, weight, targets = inputs(0, torch.float32)
    losses = linear_cross_entropy(hidden, weight, targets)
    losses.total.backward()
    assert losses.total.item() == 0.0
    assert hidden.grad is not None
    assert weight.grad is not None
    assert not weight.grad.any()
    assert losses.predictions.shape == (0,)


def test_a_frozen_projection_gets_no_gradient() -> None:
    hidden, weight, targets = inputs(12, torch.float32)
    linear_cross_entropy(hidden, weight.detach(), targets).total.backward()
    expected = torch.autograd.grad(F.cross_entropy(hidden @ weight.T, targets, reduction="sum"), hidden)[0]
    assert hidden.grad is not None
    assert error(hidden.grad, expected) < TOLERANCES[torch.float32]


def test_evaluation_needs_no_gradients() -> None:
    hidden, weight, targets = inputs(12, torch.float32)
    with torch.no_grad():
        losses = linear_cross_entropy(hidden, weight, targets)
    assert not losses.total.requires_grad
    torch.testing.assert_close(losses.total, F.cross_entropy(hidden @ weight.T, targets, reduction="sum"))


def test_autocast_runs_the_products_in_bf16_and_returns_gradients_in_fp32() -> None:
    hidden, weight, targets = inputs(40, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        got = linear_cross_entropy(hidden, weight, targets, chunk=9)
    got.total.backward()
    expected = F.cross_entropy(hidden @ weight.T, targets, reduction="sum")
    gradients = torch.autograd.grad(expected, (hidden, weight))
    assert got.total.dtype == torch.float32
    assert 0 < error(got.total, expected) < TOLERANCES[torch.bfloat16]
    for x, reference in zip((hidden, weight), gradients, strict=True):
        assert x.grad is not None
        assert x.grad.dtype == torch.float32
        assert error(x.grad, reference) < TOLERANCES[torch.bfloat16]


@pytest.mark.parametrize("by_kernels", [False, pytest.param(True, marks=needs_compiler)])
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk", [7, 64])
@pytest.mark.parametrize("lies", ["rows", "columns"])
def test_products_are_added_up_in_parts(
    monkeypatch: pytest.MonkeyPatch, lies: str, chunk: int, weights: torch.dtype, by_kernels: bool
) -> None:
    monkeypatch.setattr(loss, "PART", 192 * 33)  # of 1,001 rows
    hidden, weight, targets = inputs(40, torch.float32, vocabulary=1_001, width=33)
    weight = weight.detach().to(weights)
    weight = (weight.T.contiguous().T if lies == "columns" else weight).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        total = linear_cross_entropy(hidden, weight, targets, chunk=chunk, by_kernels=by_kernels).total
    (found,) = torch.autograd.grad(total, weight)
    exact = weight.detach().double().requires_grad_()
    expected = F.cross_entropy(hidden.detach().double() @ exact.T, targets, reduction="sum")
    assert found.dtype == weights
    assert error(found, torch.autograd.grad(expected, exact)[0]) < TOLERANCES[torch.bfloat16]


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk", [9, 64])
def test_a_graph_that_is_kept_gives_its_gradients_again(chunk: int, weights: torch.dtype) -> None:
    hidden, weight, targets = inputs(40, torch.float32)
    weight = weight.detach().to(weights).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        total = linear_cross_entropy(hidden, weight, targets, chunk=chunk).total
    found = [
        torch.autograd.grad(total * factor, (hidden, weight), retain_graph=factor != 4.0) for factor in (1.0, 2.0, 4.0)
    ]
    for once, twice, thrice in zip(*found, strict=True):
        assert torch.equal(2 * once, twice)
        assert torch.equal(4 * once, thrice)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        total.backward()


class Made(TorchDispatchMode):
    """Counts memory that is asked for, in numbers."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in (*args, *(kwargs or {}).values()) if isinstance(x, Tensor)}
        if isinstance(out, Tensor) and out.untyped_storage().data_ptr() not in given:
            self.numbers += out.numel()
        return out


def test_the_gradient_of_the_head_is_multiplied_where_it_lies() -> None:
    hidden, weight, targets = inputs(40, torch.float32, vocabulary=1_000)
    total = linear_cross_entropy(hidden, weight, targets, chunk=9).total
    with Made() as seen:
        (total / 3).backward()
    assert 0 < seen.numbers < weight.numel()


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, Tensor):
                self.elements = max(self.elements, x.numel())
        return out


def test_logits_of_all_positions_are_never_held() -> None:
    hidden, weight, targets = inputs(512, torch.float32, vocabulary=4_000, width=8)
    with Largest() as seen:
        linear_cross_entropy(hidden, weight, targets, chunk=10).total.backward()
    assert seen.elements == 10 * 4_000  # and 512 * 4,000 would be all of them


@pytest.mark.parametrize("by_kernels", [False, pytest.param(True, marks=needs_compiler)])
def test_by_default_too_a_chunk_of_logits_is_all_that_is_held(by_kernels: bool) -> None:
    n, vocabulary, width = 1_100, 10_000, 512 if by_kernels else 64
    hidden, weight, targets = inputs(n, torch.bfloat16, vocabulary=vocabulary, width=width)
    with Largest() as seen:
        linear_cross_entropy(hidden, weight, targets, by_kernels=by_kernels).total.backward()
    assert seen.elements == vocabulary * (512 if by_kernels else 256)  # and 1,100 positions would be all of them


@pytest.mark.parametrize("by_kernels", [False, pytest.param(True, marks=needs_compiler)])
def test_targets_may_have_any_strides_and_are_int64(by_kernels: bool) -> None:
    hidden, weight, targets = inputs(40, torch.float32)
    strided = torch.stack([targets, targets], dim=1)[:, 0]
    found = [linear_cross_entropy(hidden, weight, x, by_kernels=by_kernels).total for x in (targets, strided)]
    assert torch.equal(*found)
    with pytest.raises(AssertionError, match=r"targets are int64, not torch\.int32"):
        linear_cross_entropy(hidden, weight, targets.int(), by_kernels=by_kernels)


def test_a_factor_of_the_loss_reaches_bf16_gradients_unrounded():
    torch.manual_seed(0)
    hidden = torch.randn(64, 32, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(50, 32, dtype=torch.bfloat16, requires_grad=True)
    total = linear_cross_entropy(hidden, weight, torch.randint(50, (64,))).total
    (whole,) = torch.autograd.grad(total, hidden, retain_graph=True)
    (third,) = torch.autograd.grad(total / 3, hidden)
    assert float(third.double().norm() * 3 / whole.double().norm()) == pytest.approx(1, abs=5e-4)
