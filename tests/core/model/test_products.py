"""Products in fp32 as convolutions: those of PyTorch but for rounding, in training alone."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from kosmos.compose import compose
from kosmos.model import prepacked, products
from kosmos.model.lora import LoRALinear, add_lora
from kosmos.model.loss import linear_cross_entropy
from kosmos.model.prepacked import PAYS, Prepacked
from kosmos.model.products import has_products, linear, over_rows, recurring_rows, times, use_products
from kosmos.model.recompute import run_block
from kosmos.runtime.parallel import Parallel
from kosmos.train.reference import Reference
from support.kernels import multiply_as_convolutions
from support.runs import small_run, ticks_registry
from support.steps import threads_of_torch

aten = torch.ops.aten
ZEN_5, ZEN_4 = (f"processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: {n}\nmodel\t\t: 2\n" for n in (26, 25))
INTEL = "vendor_id\t: GenuineIntel\ncpu family\t: 26\n"


class Convolutions(TorchDispatchMode):
    """How many are computed, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.forward = self.backward = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.forward += func is aten.convolution.default
        self.backward += func is aten.convolution_backward.default
        return func(*args, **kwargs or {})


@pytest.fixture
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    multiply_as_convolutions(monkeypatch)


@pytest.fixture
def two_threads() -> Iterator[None]:
    with threads_of_torch(2):
        yield


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def same(got: Tensor, expected: Tensor) -> None:
    """Sums of some hundred products in fp32."""
    assert got.shape == expected.shape and got.is_contiguous()
    torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.lists(st.integers(1, 12), max_size=3), st.integers(1, 200), st.integers(1, 200), st.booleans())
def test_any_shape_is_multiplied_as_in_fp64(lead: list[int], width: int, out: int, bias: bool) -> None:
    with pytest.MonkeyPatch.context() as patched:
        multiply_as_convolutions(patched)
        check(normal(*lead, width), normal(out, width), normal(out) if bias else None)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("shape", [(985, 192, 576), (64, 384, 1000), (2, 400, 100, 7), (21000, 1, 3)])
def test_large_ones_are_multiplied_as_in_fp64(shape: tuple[int, ...]) -> None:
    """By oneDNN, where PyTorch has it."""
    *lead, width, out = shape
    with Convolutions() as seen:
        check(normal(*lead, width), normal(out, width), normal(out))
    assert (seen.forward, seen.backward) == (1, 3)


def check(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    given = [x.requires_grad_(), weight.requires_grad_()] + ([] if bias is None else [bias.requires_grad_()])
    exact = [t.detach().double().requires_grad_() for t in given]
    expected, got = F.linear(*exact), linear(*given)
    same(got, expected)
    upstream = normal(*got.shape)
    for one, other in zip(
        torch.autograd.grad(got, given, upstream), torch.autograd.grad(expected, exact, upstream.double()), strict=True
    ):
        same(one, other)
    rows, gradient = x.detach().reshape(-1, x.shape[-1]), upstream.reshape(-1, got.shape[-1])
    same(times(gradient, weight.detach()), gradient.double() @ weight.detach().double())
    same(over_rows(gradient, rows), gradient.double().T @ rows.double())


@pytest.mark.usefixtures("of_any_size")
def test_what_is_not_fp32_of_a_cpu_is_left_to_pytorch() -> None:
    weight = normal(8, 16)
    with Convolutions() as seen:
        with torch.autocast("cpu", torch.bfloat16):
            assert linear(normal(9, 16), weight).dtype == torch.bfloat16
        linear(normal(9, 16).double(), weight.double())
        linear(normal(0, 16), weight)
        linear(normal(9, 8), weight.T)
        assert linear(normal(9, 16).to("meta"), weight.to("meta")).is_meta
    assert not seen.forward


def model() -> nn.Sequential:
    torch.manual_seed(0)
    found = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 8, bias=False))
    LoRALinear.begin(found[2], rank=2, scale=0.5)
    with torch.no_grad():
        found[2].low_rank_b.normal_()
    return found


@pytest.mark.usefixtures("of_any_size")
def test_layers_multiply_so_where_gradients_are_taken_and_are_put_back() -> None:
    found, x = model(), normal(5, 16)
    before = [dict(vars(part)) for part in found.modules()]
    expected = found(x)
    use_products(found, True)
    copy = deepcopy(found)
    with torch.no_grad():
        copy[0].weight.zero_()
    with Convolutions() as seen:
        torch.testing.assert_close(found(x), expected)
        assert seen.forward == 2
        torch.testing.assert_close(copy(x), found[2](F.gelu(found[0].bias.expand(5, 24))))
        seen.forward = 0
        with torch.no_grad():
            assert torch.equal(found(x), expected)
            with products.frozen(False):
                found(x)
        assert not seen.forward
        with products.frozen(True):
            assert not found(x).requires_grad
        assert seen.forward == 2
    assert found.state_dict().keys() == model().state_dict().keys()
    use_products(found, False)
    assert [dict(vars(part)) for part in found.modules()] == before


@given(st.integers(1, 10**6))
def test_rows_are_of_few_sizes_and_few_are_filled(count: int) -> None:
    """For each of which oneDNN keeps a kernel with memory of its own."""
    found = recurring_rows(count)
    assert count <= found < max(count + 64, 1.125 * count) and found % 64 == 0
    assert recurring_rows(found) == found
    assert len({recurring_rows(n) for n in range(1, 8193)}) <= 8 + 8 * 4


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize(
    ("shape", "cells"),
    [((64, 8), 64), ((15, 8), 64), ((1, 15, 8), 64), ((3, 5, 8), 15), ((20, 5, 8), 128), ((2, 3, 5, 8), 64)],
)
def test_rows_of_few_items_stay_as_they_are_and_none_are_cut_that_are_whole(shape: tuple[int, ...], cells: int) -> None:
    out = linear(torch.randn(shape, requires_grad=True), torch.randn(4, 8, requires_grad=True))
    seen, nodes = set(), [out.grad_fn]
    while nodes:
        node = nodes.pop()
        seen.add(node.name())
        if node.name() == "ConvolutionBackward0":
            assert node._saved_input.shape[-1] == cells
        nodes += [next_ for next_, _ in node.next_functions if next_ is not None]
    assert ("SliceBackward0" in seen) is (cells > out.shape[:-1].numel())


@pytest.mark.usefixtures("of_any_size")
def test_a_model_that_multiplies_so_is_saved_whole_and_gets_updates(tmp_path: Path) -> None:
    found, x = nn.Sequential(nn.Linear(16, 24), nn.Linear(24, 8)), normal(5, 16)
    use_products(found, True)
    torch.save(found, tmp_path / "model.pt")
    with torch.no_grad():
        found[0].weight.zero_()
    read = torch.load(tmp_path / "model.pt", weights_only=False)
    assert read[0].weight.any() and all(map(has_products, read))
    (a, of_a), (b, of_b) = ((part.weight, part.bias) for part in read)
    torch.testing.assert_close(read(x), F.linear(F.linear(x, a, of_a), b, of_b))
    add_lora(read, "backbone.lora", rank=2, alpha=4.0)
    with Convolutions() as seen:
        read(x)
    assert seen.forward == 2 and type(read[0]) is LoRALinear


@pytest.mark.usefixtures("of_any_size")
def test_selective_recomputation_keeps_them() -> None:
    found, x = model(), normal(5, 16).requires_grad_()
    use_products(found, True)
    gradients, counts = [], []
    for how in (False, "selective", True):
        with Convolutions() as seen:
            run_block(found, x, recompute=how).square().sum().backward()
        gradients.append([p.grad for p in found.parameters() if p.grad is not None])
        found.zero_grad()
        counts.append(seen.forward)
    assert counts == [2, 2, 4]
    for one, two, three in zip(*gradients, strict=True):
        assert torch.equal(one, two) and torch.equal(one, three)


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("chunk", [None, 16])
def test_losses_and_their_gradients_are_those_of_pytorch(chunk: int | None) -> None:
    weights = normal(40).abs()
    found: list[list[Tensor]] = []
    for by_kernels in (False, True):
        hidden, weight = normal(40, 24).requires_grad_(), normal(50, 24).requires_grad_()
        with Convolutions() as seen:
            given: Any = {"weights": weights, "z": 1e-3, "chunk": chunk, "by_kernels": by_kernels}
            losses = linear_cross_entropy(hidden, weight, torch.arange(40), **given)
        found.append([losses.total, losses.per_token, *torch.autograd.grad(losses.total, [hidden, weight])])
        assert bool(seen.forward) is bool(seen.backward) is by_kernels
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not prepacked._types(), reason="oneDNN reads weights faster with AVX-512")
def test_a_run_that_trains_so_writes_by_what_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepacked, "WORTH", 0)
    found = model()
    found.output_weight = lambda: None  # type: ignore[assignment]
    use_products(found, True)
    before = [dict(vars(part)) for part in found.modules()]
    with torch.no_grad(), Prepacked(found, nn.Linear(8, 9)) as writing:
        for _ in range(PAYS):
            writing.count()
        assert [dict(vars(part)) for part in found.modules()] != before
    assert [dict(vars(part)) for part in found.modules()] == before


@pytest.mark.usefixtures("of_any_size")
def test_the_model_that_a_run_began_with_multiplies_as_the_model() -> None:
    """What both round cancels out in the differences that objectives look at."""
    parts = compose(small_run(), ticks_registry())
    for wanted in (True, False):
        use_products(parts.model, wanted)
        reference = Reference(parts.model)
        reference.spread(parts.config, Parallel(), torch.device("cpu"), torch.float32)
        assert any(map(has_products, reference.copy.modules())) is wanted


def test_it_is_for_processors_that_have_whole_units_which_mkl_leaves_alone() -> None:
    assert [products._is_of_amd(told, products.FAMILY) for told in (ZEN_5, ZEN_4, INTEL, "")] == [True, *[False] * 3]
