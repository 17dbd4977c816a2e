"""``attend`` against one dense mask over the whole row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from kosmos.model.attention import attend, attend_across, attend_cached
from kosmos.model.attention_cpu import FINE
from kosmos.model.attention_groups import PLAIN
from kosmos.model.caches import KeyValueBatch
from kosmos.model.segments import Segments

from .test_decoder import Calls

LENGTHS = st.one_of(
    st.lists(st.integers(0, 20), max_size=8),
    st.lists(st.sampled_from([1, 7, 8, 9, PLAIN.short, PLAIN.short + 1, 90, FINE, FINE + 1]), max_size=4),
    st.lists(st.sampled_from([17, 30, 32, 100]), min_size=5, max_size=14),
    st.builds(lambda n, count: [n] * count, st.integers(1, 80), st.integers(1, 3)),
)


def dense(q: Tensor, k: Tensor, v: Tensor, lengths: list[int], causal: bool, window: int | None = None) -> Tensor:
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.int64))
    distance = torch.arange(len(q))[:, None] - torch.arange(len(q))
    seen = document[:, None] == document
    if causal:
        seen = seen & (distance >= 0)
    if window is not None:
        seen = seen & (distance < window)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    logits = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("hqk,khd->qhd", logits.masked_fill(~seen, float("-inf")).softmax(-1), v)


def row(T: int, *, heads: int = 4, groups: int = 2, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(T)
    return [torch.randn(T, n, 8, dtype=dtype, requires_grad=True) for n in (heads, groups, groups)]


@settings(max_examples=60, deadline=None)
@example(lengths=[65, 65, 90, 65], causal=True, window=None, width=8)
@example(lengths=[65, 3, 65, 65, 90, 65, 9], causal=True, window=None, width=8)
@example(lengths=[70, 70, 5, 70, 66, 66], causal=False, window=None, width=8)
@given(
    lengths=LENGTHS,
    causal=st.booleans(),
    window=st.one_of(st.none(), st.integers(1, 12)),
    width=st.sampled_from([8, 6]),  # of values: where it is not that of keys, as on an accelerator without flash kernel
)
def test_values_and_gradients_equal_those_of_a_dense_mask(
    lengths: list[int], causal: bool, window: int | None, width: int
) -> None:
    window = window if causal else None
    q, k, v = row(sum(lengths))
    v = v[..., :width]
    got = attend(q, k, v, Segments(tuple(lengths)), causal=causal, window=window)
    expected = dense(q, k, v, lengths, causal, window)
    upstream = torch.randn_like(expected)
    gradients = zip(
        torch.autograd.grad(got, (q, k, v), upstream), torch.autograd.grad(expected, (q, k, v), upstream), strict=True
    )
    # fp64: measured 1.5e-15
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    for ours, reference in gradients:
        torch.testing.assert_close(ours, reference, rtol=0, atol=1e-12)


def test_a_row_without_tokens_has_gradients() -> None:
    q, k, v = row(0)
    attend(q, k, v, Segments(()), causal=True).sum().backward()
    assert all(x.grad is not None and x.grad.shape == x.shape for x in (q, k, v))


@pytest.mark.parametrize("lengths", [[12], [3, 9], [70, 70, 5]])
def test_any_strides_are_taken(lengths: list[int]) -> None:
    turned = [
        x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in row(sum(lengths), groups=4)
    ]
    got = attend(*turned, Segments(tuple(lengths)), causal=True)
    torch.testing.assert_close(got, dense(*turned, lengths, True), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [True, False])
def test_one_head_of_a_joined_projection_is_taken_as_it_lies(causal: bool, dtype: torch.dtype) -> None:
    joined = row(64, heads=3)[0].detach().to(dtype).requires_grad_()
    q, k, v = (joined[:, n : n + 1] for n in range(3))
    attend(q, k, v, Segments((64,)), causal=causal).sum().backward()  # its gradient is one number, spread
    apart = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    attend(*apart, Segments((64,)), causal=causal).sum().backward()
    assert joined.grad is not None
    assert joined.grad.equal(torch.cat([x.grad for x in apart if x.grad is not None], dim=1))


def test_a_scale_replaces_the_default_one() -> None:
    q, k, v = row(9)
    got = attend(q, k, v, Segments((4, 5)), causal=True, scale=1.0)
    torch.testing.assert_close(got, dense(q * 8**0.5, k, v, [4, 5], True), rtol=0, atol=1e-12)


def test_autocast_gives_its_own_type() -> None:
    q, k, v = row(20, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        got = attend(q, k, v.to(torch.bfloat16), Segments((8, 12)), causal=True)
    assert got.dtype == torch.bfloat16
    # bf16 keeps 8 bits; measured 3e-3 of the largest value
    torch.testing.assert_close(got.float(), dense(q, k, v, [8, 12], True), rtol=0, atol=5e-2)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("t", [1, 4, 11])
def test_the_last_queries_see_what_they_saw_in_the_whole_document(t: int, window: int | None) -> None:
    q, k, v = row(11)
    whole = dense(q, k, v, [11], True, window)
    torch.testing.assert_close(attend_cached(q[-t:], k, v, window=window), whole[-t:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [None, 3, 40])
def test_documents_that_go_on_together_see_what_each_saw_in_the_whole_document(window: int | None) -> None:
    lengths, more = (5, 70, 2), 70  # buffers grow on the way
    documents = [row(n + more) for n in lengths]
    cache, parts = KeyValueBatch(), []
    for at in range(more + 1):
        now = [slice(0, n) if at == 0 else slice(n + at - 1, n + at) for n in lengths]
        q, k, v = (
            torch.cat([own[part] for own, part in zip(xs, now, strict=True)]) for xs in zip(*documents, strict=True)
        )
        cache.begin(Segments(tuple(lengths if at == 0 else (1, 1, 1))))
        parts.append(cache.attend(0, q.detach(), k.detach(), v.detach(), window=window))
    got = torch.stack(parts[1:], 1)
    for n, own, inputs in zip(lengths, got, documents, strict=True):
        whole = dense(*inputs, [n + more], True, window)
        torch.testing.assert_close(own, whole[n:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [None, 9])
def test_a_token_is_attended_without_a_copy_of_the_keys_and_values_before_it(window: int | None) -> None:
    q, k, v = (x.detach() for x in row(70, dtype=torch.float32))
    cache = KeyValueBatch()
    cache.begin(Segments((60, 8)))
    cache.attend(0, q[:68], k[:68], v[:68])
    cache.begin(Segments((1, 1)))
    with Calls() as calls:
        attend_cached(q[-1:], k, v, window=window)
        cache.attend(0, q[68:], k[68:], v[68:], window=window)
    assert calls.of["_scaled_dot_product_flash_attention_for_cpu"] == 2
    assert not calls.of.keys() & {"repeat_interleave", "clone", "_to_copy", "index_select", "cat"}


@pytest.mark.parametrize("lengths", [(5, 5), (3, 1, 6), ()])
def test_queries_across_see_their_own_segment_alone(lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    q = torch.randn(2 * len(lengths), 4, 8, dtype=torch.float64)
    k, v = torch.randn(2, sum(lengths), 4, 8, dtype=torch.float64)
    got = attend_across(q, k, v, 2, Segments(lengths))
    alone = [
        attend_across(a, b, c, 2, Segments((len(b),)))
        for a, b, c in zip(q.split([2] * len(lengths)), k.split(lengths), v.split(lengths), strict=True)
    ]
    torch.testing.assert_close(got, torch.cat([q[:0], *alone]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("lengths", [(8, 12), (300, 140)])
def test_evaluation_in_inference_mode_leaves_nothing_behind_for_training(
    lengths: tuple[int, ...], dtype: torch.dtype
) -> None:
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in row(sum(lengths)))
    with torch.inference_mode():
        attend(q, k, v, Segments(lengths), causal=True)
    attend(q, k, v, Segments(lengths), causal=True).sum().backward()
    assert q.grad is not None


@pytest.mark.parametrize(("size", "training", "scoring"), [(1.0, 0.01, 0.005), (6.0, 0.02, 0.005)])
def test_large_logits_in_bf16_cost_little_in_training_and_nothing_in_scores(
    size: float, training: float, scoring: float
) -> None:
    q, k, v = (x.detach() for x in row(512))
    low = [(size * q).bfloat16(), k.bfloat16(), v.bfloat16()]
    exact = dense(*(x.double() for x in low), [512], True)
    for grad, most in ((True, training), (False, scoring)):
        with torch.set_grad_enabled(grad):
            got = attend(*low, Segments((512,)), causal=True)
        assert (got.double() - exact).norm() / exact.norm() < most


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [[9, 40, 12, 33], [70] * 5, [200], [300, 130, 300], [700]])
def test_documents_in_bf16_have_the_gradients_of_fp64(lengths: list[int], causal: bool) -> None:
    q, k, v = row(sum(lengths))
    upstream = torch.randn(q.shape, dtype=torch.float64)
    expected = torch.autograd.grad(dense(q, k, v, lengths, causal), (q, k, v), upstream)
    low = [x.detach().to(torch.bfloat16).requires_grad_() for x in (q, k, v)]
    got = torch.autograd.grad(attend(*low, Segments(tuple(lengths)), causal=causal), low, upstream.to(torch.bfloat16))
    for ours, reference in zip(got, expected, strict=True):
        assert float((ours.double() - reference).norm() / reference.norm()) < 0.03  # measured 0.005 to 0.008
