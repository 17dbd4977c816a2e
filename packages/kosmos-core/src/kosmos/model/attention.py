"""Attention over a packed row, exact for each document: nothing crosses segments.

Letters: T = tokens of the row, H = heads, G = heads of keys and values (G divides H), d = width of a head.
"""

from __future__ import annotations

from contextlib import nullcontext
from inspect import signature
from typing import Any, NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from kosmos.model.attention_cpu import attend_on_cpu
from kosmos.model.attention_groups import groups_of, tell_padding
from kosmos.model.precision import product_type
from kosmos.model.segments import Segments

EXACT_UP_TO = 512
"""Keys of a call up to which torch's attention on a CPU is in fp32 where products are in bf16: there it has a kernel
for every new length, and is slower at short ones even so."""

LONGEST_STEP = 128
"""The longest segment is told to the flash kernel as a multiple of it, which is a tile there."""
_TOLD_OF_GROUPS: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
"""The kernel has always taken fewer heads of keys and values than of queries; later versions of torch ask."""


class Bounds(NamedTuple):
    """Segments as the flash kernel of a GPU takes them. Code that is compiled with them is right for any lengths."""

    cu_seqlens: Tensor
    """int32 [segments + 1]: cumulated lengths."""
    total: int
    """Rows of queries, keys and values."""
    longest: int
    """No segment is longer."""
    dtype: torch.dtype
    """In which attention is computed."""


def bounds_of(segments: Segments, x: Tensor, width: int | None = None) -> Bounds | None:
    """Of a row ``x``, from which queries, keys and values of ``width`` features a head are projected.

    None where the flash kernel does not take them. Whoever does not know the ``width`` asks ``takes`` as it attends.
    """
    dtype = product_type(x)
    if not (
        x.is_cuda
        and segments.total
        and dtype in (torch.bfloat16, torch.float16)
        and (width is None or _flash_takes(width))
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
    ):
        return None
    longest = -(-segments.longest // LONGEST_STEP) * LONGEST_STEP
    return Bounds(segments.cu_seqlens(x.device), segments.total, longest, dtype)


def takes(bounds: Bounds | None, q: Tensor, v: Tensor) -> TypeGuard[Bounds]:
    """Whether the flash kernel takes such queries and values, [T, H, d] each, of a row that it takes."""
    return bounds is not None and _flash_takes(q.shape[2]) and q.shape[2] == v.shape[2]


def _flash_takes(width: int) -> bool:
    return width <= 256 and width % 8 == 0


def attend_within(
    q: Tensor, k: Tensor, v: Tensor, bounds: Bounds, *, causal: bool, scale: float | None = None, window: int = 0
) -> Tensor:
    """``attend`` by the flash kernel: what may stand in compiled code. A ``window`` of 0 is none."""
    # The kernel would read and write wherever the bounds say.
    assert bounds.total == q.shape[0] == k.shape[0] == v.shape[0], (bounds.total, q.shape, k.shape, v.shape)
    sight = (window - 1, 0) if causal else (-1, -1)
    return _flash(q, k, v, bounds, bounds, scale, sight)


def attend_row(
    q: Tensor, k: Tensor, v: Tensor, row: Segments | Bounds, *, causal: bool, by_kernels: bool = False
) -> Tensor:
    """``attend`` in a block, to which a row is given as ``bounds_of`` has it, or as segments where that has nothing."""
    if isinstance(row, Bounds):
        return attend_within(q, k, v, row, causal=causal)
    out: Tensor = attend(q, k, v, row, causal=causal, by_kernels=by_kernels)
    return out


# Lengths differ from row to row: compiled in, each row would be a program of its own.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    segments: Segments,
    *,
    causal: bool,
    scale: float | None = None,
    window: int | None = None,
    by_kernels: bool = False,
) -> Tensor:
    """Attention within each segment.

    In compiled code a call of it cuts the block in two. On a GPU our own blocks, models of transformers and layers that
    get ``within_items`` are not cut: they call the kernel themselves.

    Args:
        q: [T, H, d].
        k: [T, G, d]; each of its heads serves H / G heads of ``q``.
        v: [T, G, d_v].
        segments: lengths that sum to T; zeros are allowed.
        causal: whether a token sees only itself and what stands before it in its segment.
        scale: of the logits; 1 / sqrt(d) by default.
        window: with ``causal``, how many tokens a token sees at most, itself included.
        by_kernels: on a CPU it is C++ of ours in bf16 (``kosmos.model.attention_compiled``), or in training its softmax
            is (``kosmos.model.cpu_kernels``), where these take it; neither takes a window.

    Returns:
        [T, H, d_v], in the autocast type where autocast is on, else in the type of ``v``. In training on a CPU
        autograd does not let it be modified in place.
    """
    assert segments.total == q.shape[0] == k.shape[0] == v.shape[0], (segments.total, q.shape, k.shape, v.shape)
    assert window is None or (causal and window > 0), (window, causal)
    if window is not None and window >= segments.longest:
        window = None
    dtype = product_type(v)
    if not segments.total:
        return q.new_zeros(0, q.shape[1], v.shape[2], dtype=dtype) + (q.sum() + k.sum() + v.sum()).to(dtype)
    bounds = bounds_of(segments, v)
    if takes(bounds, q, v):
        return attend_within(q, k, v, bounds, causal=causal, scale=scale, window=window or 0)
    k, v = _expand_groups(k, v, q.shape[1])
    if q.device.type == "cpu" and window is None and type(q) is Tensor and q.shape[2] == v.shape[2]:
        settings: dict[str, Any] = {"causal": causal, "scale": scale, "dtype": dtype, "by_kernels": by_kernels}
        return attend_on_cpu(q, k, v, segments, **settings)
    return _attend_groups(q, k, v, segments, causal, scale, window)


def attend_cached(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    window: int | None = None,
    by_kernels: bool = False,
) -> Tensor:
    """Causal attention of the last t of S positions of one document over all S.

    Args:
        q: [t, H, d].
        k: [S, G, d], S >= t.
        v: [S, G, d_v].
        scale: of the logits; 1 / sqrt(d) by default.
        window: how many tokens a token sees at most, itself included.
        by_kernels: as of ``attend``, of a prompt.

    Returns:
        [t, H, d_v].
    """
    t, S = q.shape[0], k.shape[0]
    assert t <= S, (q.shape, k.shape)
    if t == S:
        whole: Tensor = attend(q, k, v, Segments((t,)), causal=True, scale=scale, window=window, by_kernels=by_kernels)
        return whole
    if t == 1:
        first = max(0, S - window) if window else 0
        return _attend_one(q, k[None, first:], v[None, first:], scale)
    k, v = _expand_groups(k, v, q.shape[1])
    return _sdpa(q[None], k[None], v[None], scale, mask=_visible(t, S, window, q.device))[0]


def attend_each(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, *, scale: float | None = None) -> Tensor:
    """One query of each of B documents over the document's own keys.

    Args:
        q: [B, H, d].
        k: [B, S, G, d].
        v: [B, S, G, d_v].
        seen: bool [B, S], which of the keys it sees.
        scale: of the logits; 1 / sqrt(d) by default.

    Returns:
        [B, H, d_v].
    """
    return _attend_one(q, k, v, scale, mask=seen[:, None, None])


def attend_across(q: Tensor, k: Tensor, v: Tensor, queries: int, segments: Segments) -> Tensor:
    """Each segment's own ``queries`` queries see all of that segment and nothing else.

    Args:
        q: [segments * queries, H, d].
        k: [S, H, d], cut by ``segments``.
        v: [S, H, d].

    Returns:
        [segments * queries, H, d].
    """
    count = len(segments.lengths)
    assert q.shape[0] == count * queries, (q.shape, count, queries)
    assert k.shape[0] == v.shape[0] == segments.total, (k.shape, v.shape, segments)
    if not count:
        return (q + (k.sum() + v.sum())).to(product_type(v))
    if len(set(segments.lengths)) == 1:
        own = (count, segments.longest)
        return _sdpa(_fold(q, (count, queries)), _fold(k, own), _fold(v, own), None).flatten(0, 1)
    bounds = bounds_of(segments, v, q.shape[2])
    if bounds is not None:
        own_bounds = bounds_of(Segments((queries,) * count), v, q.shape[2])
        assert own_bounds is not None
        return _flash(q, k, v, own_bounds, bounds, None, (-1, -1))
    lengths = list(segments.lengths)
    parts = zip(torch.split(q, queries), torch.split(k, lengths), torch.split(v, lengths), strict=True)
    return torch.cat([_sdpa(a[None], b[None], c[None], None)[0] for a, b, c in parts])


def _attend_one(q: Tensor, k: Tensor, v: Tensor, scale: float | None, mask: Tensor | None = None) -> Tensor:
    """One query of each document: q [B, H, d], k [B, S, G, d], v [B, S, G, d_v] -> [B, H, d_v].

    Queries that share a head of keys are its rows: repeated for each of them, the whole cache would be copied for every
    token.
    """
    rows = q.reshape(len(q), k.shape[2], -1, q.shape[2]).transpose(1, 2)
    return _sdpa(rows, k, v, scale, mask=mask).transpose(1, 2).flatten(1, 2)


def _attend_groups(
    q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool, scale: float | None, window: int | None
) -> Tensor:
    groups = groups_of(segments, causal=causal, device=q.device)
    tell_padding(groups, segments, q, v)
    rows = [groups.spread(x) for x in (q, k, v)]
    found = []
    for group in groups.each:
        a, b, c = (group.of(x).transpose(1, 2) for x in rows)
        found.append(_attend_batch(a, b, c, causal, scale, window, group.seen).flatten(0, 1))
    return groups.gathered(torch.cat(found))


def _attend_batch(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, window: int | None, seen: Tensor | None = None
) -> Tensor:
    """q, k [B, L, H, d], v [B, L, H, d_v] -> [B, L, H, d_v]; ``seen`` says which keys are no padding."""
    length = q.shape[1]
    if window is not None and window < length:
        seen = _visible(length, length, window, q.device)  # only causal attention has a window: padding is behind
    return _sdpa(q, k, v, scale, causal=causal and seen is None, mask=seen)


def _fold(x: Tensor, shape: tuple[int, int]) -> Tensor:
    """[B L, ...] -> [B, L, ...]."""
    return x.reshape(*shape, *x.shape[1:])


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, *, causal: bool = False, mask: Tensor | None = None
) -> Tensor:
    dtype, kind = product_type(v), q.device.type
    exact = kind == "cpu" and dtype == torch.bfloat16 and k.shape[1] <= EXACT_UP_TO
    q, k, v = (x.to(torch.float32 if exact else dtype).transpose(1, 2) for x in (q, k, v))
    with torch.autocast(kind, enabled=False) if exact else nullcontext():  # it would cast them back
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)
    return out.transpose(1, 2).to(dtype)


def _visible(t: int, S: int, window: int | None, device: torch.device) -> Tensor:
    """bool [t, S]: which of S positions the last t of them see."""
    distance = torch.arange(S - t, S, device=device)[:, None] - torch.arange(S, device=device)
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


def _expand_groups(k: Tensor, v: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """[..., G, d] -> [..., H, d]."""
    own = k.shape[-2]
    if own == heads:
        return k, v
    assert heads % own == 0, (heads, k.shape)
    return k.repeat_interleave(heads // own, -2), v.repeat_interleave(heads // own, -2)


def _flash(
    q: Tensor, k: Tensor, v: Tensor, rows: Bounds, columns: Bounds, scale: float | None, sight: tuple[int, int]
) -> Tensor:
    """``sight``: how far a query sees to the left and to the right, -1 for without limit."""
    q, k, v = (x.to(columns.dtype) for x in (q, k, v))
    told = _TOLD_OF_GROUPS if k.shape[1] < q.shape[1] else {}
    out = varlen_attn(
        q, k, v, rows.cu_seqlens, columns.cu_seqlens, rows.longest, columns.longest,
        scale=scale, window_size=sight, **told,
    )  # fmt: skip
    assert isinstance(out, Tensor)
    return out
