"""A CPU in bf16 meets few shapes, and padding to them changes nothing."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kosmos import ItemTransformer
from kosmos.model import attention_products
from kosmos.model.attention import attend
from kosmos.model.attention_cpu import FINE
from kosmos.model.attention_products import BLOCK, SPANS, WHOLE
from kosmos.model.connectors import MLPConnector
from kosmos.model.loss import linear_cross_entropy
from kosmos.model.omni import Stream
from kosmos.model.recompute import Recompute
from kosmos.model.recurring import MULTIPLE
from kosmos.model.segments import Segments

ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


class Plain(ItemTransformer):
    """Cells are features already."""

    input = None
    takes_padding = True

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        return self.transform(values, grids)


class Shapes(TorchDispatchMode):
    """Shapes of the products and attentions that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.products: set[tuple[torch.Size, ...]] = set()
        self.attended: set[tuple[int, int]] = set()
        """Matrices of a call of attention, and rows of each."""
        self.batches: set[tuple[torch.Size, ...]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            self.products.add(tuple(a.shape for a in args if isinstance(a, Tensor) and a.dim() == 2))
        if func is torch.ops.kosmos.attention_in_products.default:
            self.attended |= set(zip(args[4], args[5], strict=True))
        assert func is not ATTENTION
        if func.overloadpacket in (torch.ops.aten.bmm, torch.ops.aten.baddbmm, torch.ops.aten.baddbmm_):
            self.batches.add(tuple(a.shape for a in args[-2:]))
        return func(*args, **(kwargs or {}))


def stream(pool: int) -> Stream:
    torch.manual_seed(0)
    encoder: Any = Plain(width=32, layers=2, heads=2, feed_forward=2, rotary=True)
    return Stream(encoder, MLPConnector(32, 48, pool=(pool, 1, 1)), width=48)


def apart(found: Tensor, exact: Tensor) -> float:
    return float(((found - exact).norm() / exact.norm().clamp_min(1e-3)).detach())


def test_rows_of_any_cells_make_few_shapes() -> None:
    model, seen = stream(1), Shapes()
    for count in range(1, 3 * MULTIPLE, 5):
        with torch.autocast("cpu", torch.bfloat16), seen:
            out = model(torch.randn(count, 32), torch.tensor([[count, 1, 1]]))
            out.float().sum().backward()
        assert out.shape == (count, 48)
    sizes = {size for shapes in seen.products for shape in shapes for size in shape}
    assert sizes <= {32, 48, 64, 96, MULTIPLE, 2 * MULTIPLE, 3 * MULTIPLE}


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=5), pool=st.integers(1, 3))
def test_padded_rows_give_the_slots_and_gradients_of_the_row(lengths: list[int], pool: int) -> None:
    model, values = stream(pool), torch.randn(sum(lengths), 32)
    grids = torch.tensor([[n, 1, 1] for n in lengths])
    found = []
    for takes_padding in (True, False):
        model.takes_padding = takes_padding
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = model(values, grids)
        out.float().square().sum().backward()
        found.append((out.detach().float(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    (padded, padded_gradients), (plain, gradients) = found
    # Of the largest: measured 0 and, of gradients, 8e-5 with AMX; other kernels may round a product of another shape
    # otherwise, which in bf16 is 4e-3.
    torch.testing.assert_close(padded, plain, rtol=0, atol=8e-3 * float(plain.abs().max()))
    for ours, reference in zip(padded_gradients, gradients, strict=True):
        torch.testing.assert_close(ours, reference, rtol=0, atol=8e-3 * float(reference.abs().max()) + 1e-6)


def test_an_empty_row_stays_empty() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        out = stream(1)(torch.zeros(0, 32), torch.zeros(0, 3, dtype=torch.int64))
    assert out.shape == (0, 48)


def attended(lengths: tuple[int, ...], causal: bool, dtype: torch.dtype, scale: float | None = None) -> list[Tensor]:
    """What attention in ``dtype`` gives for a row, and its gradients."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(sum(lengths), 2, 16, requires_grad=True) for _ in range(3))
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        out = attend(q, k, v, Segments(lengths), causal=causal, scale=scale)
    assert out.dtype == dtype
    return [out.detach().float(), *torch.autograd.grad(out, (q, k, v), torch.randn(out.shape).to(dtype))]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [9, FINE, FINE + 1, WHOLE, WHOLE + 1, 2 * BLOCK + 76])
def test_documents_are_padded_and_attend_as_before(length: int, causal: bool) -> None:
    with Shapes() as seen:
        ours = attended((length,), causal, torch.bfloat16, 0.3)
    step = 16 if length <= FINE else 32
    assert seen.attended == {(2, -(-length // step) * step)}
    exact = attended((length,), causal, torch.float32, 0.3)
    # bf16: measured at most 4.6e-3, and 8.5e-3 of gradients
    assert max(apart(x, y) for x, y in zip(ours, exact, strict=True)) < 2e-2


def test_rows_of_any_documents_make_few_shapes() -> None:
    random, shapes = Random(0), set()
    for _ in range(40):
        lengths = tuple(random.randint(1, 400) for _ in range(random.randint(1, 12)))
        with Shapes() as seen:
            attended(lengths, random.random() < 0.5, torch.bfloat16)
        shapes |= seen.attended
    # 2 heads: of 1 to 8 documents of up to 128 tokens, up to 5 of 160, and so on; of longer ones one.
    assert {matrices for matrices, _ in shapes} <= {2, 4, 8, 16}
    assert {rows for _, rows in shapes} <= {*range(16, 129, 16), *range(160, 401, 32), 416}
    assert max(matrices for matrices, rows in shapes if rows > 160) <= 4


@pytest.mark.parametrize("length", [4096, 4500])
def test_the_blocks_of_one_long_document_make_few_shapes(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_products, "SCRATCH", 2**19)  # as with many heads: 64 queries a block
    with Shapes() as seen:
        ours = attended((length,), True, torch.bfloat16)
    # Of the backward pass, whose blocks are those of the forward pass within the operator: three shapes a span; the
    # last block may be a shorter one.
    assert 0 < len(seen.batches) <= 3 * (SPANS + 1)
    exact = attended((length,), True, torch.float32)
    assert max(apart(x, y) for x, y in zip(ours, exact, strict=True)) < 2e-2


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([1, 9, 64, 65, 96, 97, 130, 130, 600]), min_size=1, max_size=5),
    causal=st.booleans(),
)
def test_a_row_in_bf16_attends_as_one_in_fp32(lengths: list[int], causal: bool) -> None:
    ours, exact = (attended(tuple(lengths), causal, dtype) for dtype in (torch.bfloat16, torch.float32))
    assert max(apart(x, y) for x, y in zip(ours, exact, strict=True)) < 2e-2


@pytest.mark.parametrize("recompute", [True, "selective"])
def test_attention_in_bf16_may_be_recomputed(recompute: Recompute) -> None:
    torch.manual_seed(0)
    encoder, items = (
        Plain(width=32, layers=1, heads=2, feed_forward=2),
        torch.tensor([[n, 1, 1] for n in (5, 130, 9, 97)]),
    )
    values, found = torch.randn(241, 32), []
    for wanted in (False, recompute):
        encoder.set_gradient_checkpointing(wanted)
        encoder.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            encoder(values, items).float().square().sum().backward()
        found.append([p.grad.clone() for p in encoder.parameters() if p.grad is not None])
    for ours, kept in zip(*found, strict=True):
        torch.testing.assert_close(ours, kept, rtol=0, atol=0)


def test_the_loss_makes_few_shapes() -> None:
    weight, seen = torch.randn(100, 32, requires_grad=True), Shapes()
    for count in range(1, 2 * MULTIPLE, 5):
        hidden = torch.randn(count, 32, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16), seen:
            linear_cross_entropy(hidden, weight, torch.zeros(count, dtype=torch.int64)).total.backward()
    assert {size for shapes in seen.products for shape in shapes for size in shape} <= {32, 100, MULTIPLE, 2 * MULTIPLE}
