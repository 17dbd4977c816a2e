"""Softmax and cross entropy in C++ are what PyTorch's operations give, by themselves and in attention and loss."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from kosmos.data.batch import DocumentInfo, packed
from kosmos.model import attention_cpu, attention_products
from kosmos.model.attention import attend
from kosmos.model.attention_compiled import attends_compiled
from kosmos.model.attention_cpu import FINE
from kosmos.model.attention_products import SHORT
from kosmos.model.cpu_kernels import cross_entropy_, rms_norm, softmax, softmax_backward_, use_kernels
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.model.loss import computed_positions, linear_cross_entropy
from kosmos.model.omni import OmniModel
from kosmos.model.rotary import rotate, rotation
from kosmos.model.segments import Segments

from .test_attention import dense
from .test_loss import TOLERANCES, error, inputs

pytestmark = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
TYPES = [torch.float32, torch.bfloat16]
NOT_FINITE = [float("nan"), float("inf")]


@settings(max_examples=60, deadline=None)
@example(shape=(3, 70, 300), dtype=torch.bfloat16, mask="causal", size=3.0)  # by two threads
@example(shape=(3, 70, 300), dtype=torch.float32, mask="bias", size=3.0)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 40), st.sampled_from([1, 2, 15, 16, 17, 197])),
    dtype=st.sampled_from(TYPES),
    mask=st.sampled_from(["none", "causal", "bias"]),
    size=st.sampled_from([0.01, 3.0, 80.0]),
)
def test_softmax_is_that_of_torch(shape: tuple[int, int, int], dtype: torch.dtype, mask: str, size: float) -> None:
    torch.manual_seed(0)
    count, rows, keys = shape
    logits = (size * torch.randn(shape)).to(dtype)
    hidden = torch.zeros(shape, dtype=torch.bool)
    first = bias = None
    if mask == "causal":
        first = max(0, keys - rows)
        hidden = torch.arange(keys) > first + torch.arange(rows)[:, None]
    elif mask == "bias":
        own = torch.rand(count, 1, keys) < 0.3
        own[..., 0] = False  # a query sees something
        bias, hidden = torch.zeros(own.shape, dtype=dtype).masked_fill_(own, float("-inf")), own
    out = torch.full_like(logits, float("nan"))
    softmax(logits, bias, 0.5, first, out)
    exact = (logits.double() * 0.5).masked_fill(hidden, float("-inf")).softmax(-1)
    assert not out[hidden.expand(shape)].any()
    # logits to 160 are rounded to a hundred-thousandth
    torch.testing.assert_close(out.double(), exact, rtol=1e-5 if dtype == torch.float32 else 2**-8, atol=1e-30)


@settings(max_examples=60, deadline=None)
@example(shape=(3, 70, 300), dtype=torch.bfloat16, causal=True, garbage=0.0)  # by two threads
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 40), st.sampled_from([1, 2, 15, 16, 17, 197])),
    dtype=st.sampled_from(TYPES),
    causal=st.booleans(),
    garbage=st.sampled_from([3.0, float("nan"), float("inf")]),
)
def test_gradients_of_softmax_are_those_of_torch(
    shape: tuple[int, int, int], dtype: torch.dtype, causal: bool, garbage: float
) -> None:
    torch.manual_seed(0)
    _, rows, keys = shape
    first = max(0, keys - rows) if causal else None
    hidden = torch.arange(keys) > first + torch.arange(rows)[:, None] if first is not None else torch.zeros(rows, keys)
    logits = torch.randn(shape).masked_fill_(hidden.bool(), float("-inf"))
    shares, changes = logits.softmax(-1).to(dtype), torch.randn(shape).to(dtype)
    exact = torch._softmax_backward_data(changes.double(), shares.double(), -1, torch.float64) * 0.5
    changes.masked_fill_(hidden.bool(), garbage)
    softmax_backward_(changes, shares, 0.5, first)
    torch.testing.assert_close(changes.double(), exact, rtol=2e-5 if dtype == torch.float32 else 2**-8, atol=1e-6)


@settings(max_examples=60, deadline=None)
@example(count=40, padding=3, vocabulary=900, dtype=torch.bfloat16, z=0.1, size=3.0)  # by two threads
@given(
    count=st.sampled_from([0, 1, 7]),
    padding=st.integers(0, 3),
    vocabulary=st.sampled_from([1, 2, 16, 50, 257]),
    dtype=st.sampled_from(TYPES),
    z=st.sampled_from([0.0, 0.1]),
    size=st.sampled_from([0.01, 3.0, 80.0]),
)
def test_losses_and_their_gradients_are_those_of_torch(
    count: int, padding: int, vocabulary: int, dtype: torch.dtype, z: float, size: float
) -> None:
    torch.manual_seed(0)
    logits = (size * torch.randn(count + padding, vocabulary)).to(dtype)
    targets, losses, added = torch.randint(vocabulary, (count,)), torch.full((count,), -1.0), torch.full((count,), -1.0)
    exact = logits[:count].double().requires_grad_()
    expected = F.cross_entropy(exact, targets, reduction="none")
    more = z * exact.logsumexp(1).square()
    (slopes,) = torch.autograd.grad((expected + more).sum(), exact)
    cross_entropy_(logits, targets, losses, added if z else None, z)
    torch.testing.assert_close(losses.double(), expected.detach(), rtol=1e-6, atol=1e-5)
    if z:
        torch.testing.assert_close(added.double(), more.detach(), rtol=1e-5, atol=1e-5)
    assert not logits[count:].any()
    most = float(slopes.abs().max()) if count else 0.0
    torch.testing.assert_close(
        logits[:count].double(), slopes, rtol=2e-5 if dtype == torch.float32 else 2**-8, atol=1e-6 * max(1.0, most)
    )


def test_an_offset_of_all_logits_does_not_round_the_losses() -> None:
    torch.manual_seed(0)
    logits, targets, losses, added = torch.randn(7, 50) + 1e4, torch.randint(50, (7,)), torch.empty(7), torch.empty(7)
    exact = logits.double()
    cross_entropy_(logits, targets, losses, added, 1e-4)
    expected = F.cross_entropy(exact, targets, reduction="none")
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(added.double(), 1e-4 * exact.logsumexp(1).square(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("wrong", NOT_FINITE)
def test_rows_that_are_wrong_stay_wrong_alone(dtype: torch.dtype, wrong: float) -> None:
    logits = torch.ones(3, 20, dtype=dtype)
    logits[1, 17] = wrong
    out = softmax(logits[None], None, 1.0, None, torch.empty_like(logits[None]))[0]
    losses = torch.empty(3)
    cross_entropy_(logits, torch.zeros(3, dtype=torch.int64), losses, None, 0.0)
    for found in (out, losses[:, None], logits):
        assert found[1].isnan().any() and found[0].isfinite().all() and found[2].isfinite().all()


@pytest.mark.parametrize("target", [-100, -1, 5])
def test_a_target_that_is_no_token_is_refused_before_anything_is_written(target: int) -> None:
    logits, losses = torch.ones(2, 5), torch.full((2,), -1.0)
    with pytest.raises(IndexError, match=f"{target}.* of 5 tokens"):
        cross_entropy_(logits, torch.tensor([0, target]), losses, None, 0.0)
    assert logits.eq(1).all() and losses.eq(-1).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [[9, 40, 12, 33], [70] * 5, [300, 130, 20], [700]])
@pytest.mark.parametrize("block", [SHORT, 512], ids=["blocks", "blocks with AMX"])
def test_attention_by_kernels_has_the_gradients_of_fp64(
    block: int,
    lengths: list[int],
    causal: bool,
    dtype: torch.dtype,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("BLOCK", "WHOLE"):
        monkeypatch.setattr(attention_products, name, block)
    monkeypatch.setattr(
        attention_cpu, "can_attend", lambda *_, **__: False
    )  # as on a processor that does not multiply bf16
    torch.manual_seed(0)
    q, k, v = (torch.randn(sum(lengths), n, 8, dtype=torch.float64, requires_grad=True) for n in (4, 2, 2))
    low = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
    upstream = torch.randn(q.shape, dtype=torch.float64)

    def found(row: list[Tensor], run: Callable[..., Tensor]) -> list[Tensor]:
        out = run(*row)
        return [out, *torch.autograd.grad(out, row, upstream.to(out.dtype))]

    expected = found([q, k, v], lambda *row: dense(*row, lengths, causal))
    got = found(low, lambda *row: attend(*row, Segments(tuple(lengths)), causal=causal, by_kernels=True))
    assert ("softmax" in calls) is (dtype == torch.bfloat16 or min(lengths) <= FINE)  # others are of torch's kernel
    for ours, reference in zip(got, expected, strict=True):
        # measured 2e-7 and 0.008
        assert error(ours, reference) < {torch.float32: 1e-6, torch.bfloat16: 0.03}[dtype]


@pytest.mark.parametrize("chunk", [None, 7])
@pytest.mark.parametrize("z", [0.0, 0.1])
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_the_loss_by_kernels_is_that_of_cross_entropy(
    dtype: torch.dtype, z: float, chunk: int | None, calls: list[str]
) -> None:
    hidden, weight, targets = inputs(40, dtype)
    got = linear_cross_entropy(hidden, weight, targets, z=z, chunk=chunk, by_kernels=True)
    (3 * got.total).backward()
    assert bool(calls) is (dtype != torch.float64)
    exact_hidden, exact_weight = (x.detach().double().requires_grad_() for x in (hidden, weight))
    logits = exact_hidden @ exact_weight.T
    losses = F.cross_entropy(logits, targets, reduction="none")
    expected = (losses + z * logits.logsumexp(1).square()).sum()
    (3 * expected).backward()
    for ours, exact in (
        (got.total, expected),
        (got.per_token, losses),
        (hidden.grad, exact_hidden.grad),
        (weight.grad, exact_weight.grad),
    ):
        assert error(ours, exact) < TOLERANCES[dtype]


@pytest.mark.parametrize("z", [0.0, 0.1])
@pytest.mark.parametrize("low", [True, False])
def test_chunks_of_the_loss_by_kernels_are_as_long_as_the_model_is_wide(low: bool, z: float) -> None:
    """One chunk and several, of fp32 and bf16 weights under autocast."""
    torch.manual_seed(0)
    kind = torch.bfloat16 if low else torch.float32
    weight = (0.05 * torch.randn(70_000, 256)).to(kind).requires_grad_()
    for n in (200, 300):
        hidden, targets = torch.randn(n, 256, requires_grad=True), torch.randint(70_000, (n,))
        found = []
        for by_kernels in (False, True):
            with torch.autocast("cpu", torch.bfloat16):
                total = linear_cross_entropy(hidden, weight, targets, z=z, by_kernels=by_kernels).total
            found.append([total, *torch.autograd.grad(0.3 * total, (hidden, weight))])
        assert computed_positions(n, weight, by_kernels=True) == (
            n if weight.dtype == torch.float32 else 320 if n > 256 else 256
        )
        for ours, torch_s in zip(found[1], found[0], strict=True):
            assert ours.dtype == torch_s.dtype
            assert error(ours, torch_s) < 1e-2


def test_scores_are_those_of_torch(calls: list[str]) -> None:
    hidden, weight, targets = inputs(40, torch.float32)
    with torch.no_grad():
        linear_cross_entropy(hidden, weight, targets, by_kernels=True)
        attend(*(torch.randn(9, 2, 8) for _ in range(3)), Segments((9,)), causal=True, by_kernels=True)
    assert not calls


def test_a_model_of_transformers_attends_by_kernels_too(calls: list[str]) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }  # fmt: skip
    backbone = HuggingFaceBackbone(50, config={"model_type": "llama", **sizes})
    model = OmniModel(backbone, {})
    ids, lengths = torch.randint(50, (60,)), (40, 20)
    positions = torch.cat([torch.arange(n) for n in lengths])
    documents = DocumentInfo("a", "rows", (), 0, 40), DocumentInfo("b", "rows", (), 40, 20)
    losses = []
    attends = "attend" if attends_compiled(ids.device, torch.float32) else "softmax"
    for wanted in (False, True):
        use_kernels(model, wanted)
        calls.clear()
        row = packed(ids, ids.roll(-1), positions, documents, {})
        losses.append(model(row).total)
        assert set(calls) == ({"norm", "swiglu", attends, "cross_entropy"} if wanted else set())
    torch.testing.assert_close(*losses)


def test_a_device_that_is_torchs_default_is_not_where_kernels_write() -> None:
    table = rotation(torch.arange(300), 8, "rope", base=10_000.0, middle=0).query
    row, weight = torch.randn(300, 2, 8, requires_grad=True), torch.ones(8)
    segments = [(Segments((9, 30, 261)), True), (Segments((300,)), True), (Segments((40, 30, 230)), False)]

    def found() -> list[Tensor]:
        outs = [rotate(row, table, by_kernels=True), rms_norm(row, weight, 1e-6, torch.bfloat16)]
        with torch.autocast("cpu", torch.bfloat16):
            for by_kernels in (True, False):
                outs += [attend(row, row, row, s, causal=c, by_kernels=by_kernels) for s, c in segments]
        whole = torch.cat([out.float() for out in outs]).square().sum()
        return [*outs, *torch.autograd.grad(whole, row)]

    expected = found()
    attention_products._kept.__dict__.clear()
    with torch.device("meta"):
        got = found()
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
