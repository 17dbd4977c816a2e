"""Attention over a packed row, exact for each document: nothing crosses segments.

Letters: T = tokens of the row, H = heads, G = heads of keys and values (G divides H), d = width of a head.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kosmos.model.recurring import rounded, wants_recurring
from kosmos.model.segments import Segments

SHORT = 64
"""Segments up to this length share batched calls; see ``_attend_buckets``."""
STEP = 8
"""Short segments are padded up to a multiple of this."""
EXACT_UP_TO = 512
"""Keys of a call up to which a CPU attends in fp32 where it multiplies in bf16. Its kernel in bf16 is compiled for
every new length (9 ms and 8 MB), and is slower at short ones even so: forward and backward of segments of 64, 196 and
500 tokens took 1.2, 2.7 and 4.9 ms in fp32, 3.9, 3.6 and 5.0 in bf16 (Intel Xeon with AMX, two cores). Longer causal
segments are padded to a multiple of ``LONG_STEP``."""
LONG_STEP = 128


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
) -> Tensor:
    """Attention within each segment.

    Args:
        q: [T, H, d].
        k: [T, G, d]; each of its heads serves H / G heads of ``q``.
        v: [T, G, d_v].
        segments: lengths that sum to T; zeros are allowed.
        causal: whether a token sees only itself and what stands before it in its segment.
        scale: of the logits; 1 / sqrt(d) by default.
        window: with ``causal``, how many tokens a token sees at most, itself included.

    Returns:
        [T, H, d_v], in the autocast type where autocast is on, else in the type of ``v``.
    """
    assert segments.total == q.shape[0] == k.shape[0] == v.shape[0], (segments.total, q.shape, k.shape, v.shape)
    assert window is None or (causal and window > 0), (window, causal)
    k, v = _expand_groups(k, v, q.shape[1])
    if window is not None and window >= segments.longest:
        window = None
    if not segments.total:
        return q.new_zeros(0, q.shape[1], v.shape[2], dtype=_type_of(v)) + (q.sum() + k.sum() + v.sum()).to(_type_of(v))
    if _has_varlen(q, v):
        sight = (-1 if window is None else window - 1, 0) if causal else (-1, -1)
        return _flash(q, k, v, segments, segments, scale, sight)
    lengths = [length for length in segments.lengths if length]
    if min(lengths) > SHORT or len(set(lengths)) == 1:
        return _attend_runs(q, k, v, lengths, causal, scale, window)
    return _attend_buckets(q, k, v, segments, causal, scale, window)


def attend_cached(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, window: int | None = None) -> Tensor:
    """Causal attention of the last t of S positions of one document over all S.

    Args:
        q: [t, H, d].
        k: [S, G, d], S >= t.
        v: [S, G, d_v].
        scale: of the logits; 1 / sqrt(d) by default.
        window: how many tokens a token sees at most, itself included.

    Returns:
        [t, H, d_v].
    """
    t, S = q.shape[0], k.shape[0]
    assert t <= S, (q.shape, k.shape)
    k, v = _expand_groups(k, v, q.shape[1])
    if t == S:
        return _attend_batch(q[None], k[None], v[None], True, scale, window)[0]
    allowed = _visible(t, S, window, q.device) if t > 1 or window is not None else None
    return _sdpa(q[None], k[None], v[None], scale, mask=allowed)[0]


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
        return (q + (k.sum() + v.sum())).to(_type_of(v))
    if len(set(segments.lengths)) == 1:
        own = (count, segments.longest)
        return _sdpa(_fold(q, (count, queries)), _fold(k, own), _fold(v, own), None).flatten(0, 1)
    if _has_varlen(q, v):
        return _flash(q, k, v, Segments((queries,) * count), segments, None, (-1, -1))
    lengths = list(segments.lengths)
    parts = zip(torch.split(q, queries), torch.split(k, lengths), torch.split(v, lengths), strict=True)
    return torch.cat([_sdpa(a[None], b[None], c[None], None)[0] for a, b, c in parts])


def _attend_runs(
    q: Tensor, k: Tensor, v: Tensor, lengths: list[int], causal: bool, scale: float | None, window: int | None
) -> Tensor:
    """One call for segments of one length that follow each other, as pictures of one shape do."""
    shapes = [(len(list(run)), length) for length, run in groupby(lengths)]
    sizes = [count * length for count, length in shapes]
    outputs = []
    for shape, a, b, c in zip(shapes, *(torch.split(x, sizes) for x in (q, k, v)), strict=True):
        a, b, c = _fold(a, shape), _fold(b, shape), _fold(c, shape)
        outputs.append(_attend_batch(a, b, c, causal, scale, window).flatten(0, 1))
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


class _Buckets(NamedTuple):
    """How the segments of a row are attended to: short ones of nearly one length together, the others alone."""

    lengths: list[int]  # of all segments that are not empty, as the row has them
    short: list[int]  # numbers of the segments in buckets
    alone: list[int]  # of the others
    places: Tensor  # int64, where the tokens of the short segments go among the padded ones
    shapes: list[tuple[int, int]]  # segments and padded length of each bucket
    masks: list[Tensor | None]  # bool [segments, 1, 1, length] where a bucket holds padding
    slots: Tensor  # int64 [T], place of each token in the outputs: buckets first, then those alone


def _buckets(segments: Segments, device: torch.device) -> _Buckets:
    """Kept with the row, because every layer asks again; not beyond it, because a tensor made in inference mode or
    under a fake tensor mode must not meet a training step."""
    kept: dict[torch.device, _Buckets] = segments.__dict__.setdefault("_buckets", {})
    if device not in kept:
        kept[device] = _make_buckets([length for length in segments.lengths if length], device)
    return kept[device]


def _make_buckets(lengths: list[int], device: torch.device) -> _Buckets:
    members: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        if length <= SHORT:
            members.setdefault(rounded(length, STEP), []).append(number)
    alone = [number for number, length in enumerate(lengths) if length > SHORT]
    outputs = [np.zeros(0, np.int64)] * len(lengths)
    masks: list[Tensor | None] = []
    offset = 0
    for padded, numbers in members.items():
        for number in numbers:
            outputs[number] = np.arange(offset, offset + lengths[number])
            offset += padded
        mask = np.arange(padded) < np.array([lengths[number] for number in numbers])[:, None]
        masks.append(None if mask.all() else torch.tensor(mask)[:, None, None, :].to(device))
    short = sorted(number for numbers in members.values() for number in numbers)
    places = np.concatenate([outputs[number] for number in short])
    for number in alone:
        outputs[number] = np.arange(offset, offset + lengths[number])
        offset += lengths[number]
    shapes = [(len(numbers), padded) for padded, numbers in members.items()]
    slots = torch.tensor(np.concatenate(outputs)).to(device)
    return _Buckets(lengths, short, alone, torch.tensor(places).to(device), shapes, masks, slots)


def _attend_buckets(
    q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool, scale: float | None, window: int | None
) -> Tensor:
    """Short segments of nearly one length share a call, padded to a multiple of ``STEP``.

    Under a causal mask the padding stands behind every token and needs no mask of its own. Rows of 1,024
    tokens in segments of 12-40 tokens, fp32, forward and backward, 4 heads of 32 / 8 of 64, on one core: 5.8 /
    19.9 ms, against 11.5 / 25.2 for a loop over segments, 8.6 / 25.1 for groups of exactly equal length, 7.2 /
    23.1 for explicit products and softmax in these buckets, 45 / 154 for one dense mask.
    """
    plan = _buckets(segments, q.device)
    sizes = [count * length for count, length in plan.shapes]
    pieces = [torch.split(x, plan.lengths) for x in (q, k, v)]
    together = [torch.cat([own[number] for number in plan.short]) for own in pieces]
    padded = [x.new_zeros(sum(sizes), *x.shape[1:]).index_copy(0, plan.places, x) for x in together]
    outputs = []
    buckets = zip(*(torch.split(x, sizes) for x in padded), strict=True)
    for shape, mask, (a, b, c) in zip(plan.shapes, plan.masks, buckets, strict=True):
        a, b, c = _fold(a, shape), _fold(b, shape), _fold(c, shape)
        if causal or mask is None:
            outputs.append(_attend_batch(a, b, c, causal, scale, window).flatten(0, 1))
        else:
            outputs.append(_sdpa(a, b, c, scale, mask=mask).flatten(0, 1))
    for number in plan.alone:
        a, b, c = (own[number][None] for own in pieces)
        outputs.append(_attend_batch(a, b, c, causal, scale, window)[0])
    return torch.cat(outputs).index_select(0, plan.slots)


def _attend_batch(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, window: int | None) -> Tensor:
    """q, k [B, L, H, d], v [B, L, H, d_v] -> [B, L, H, d_v]."""
    length = q.shape[1]
    if window is not None and window < length:
        return _sdpa(q, k, v, scale, mask=_visible(length, length, window, q.device))
    if causal and length > EXACT_UP_TO and wants_recurring(v):
        more = (0, 0, 0, 0, 0, -length % LONG_STEP)
        q, k, v = (F.pad(x, more) for x in (q, k, v))  # behind all that a causal mask lets see
    return _sdpa(q, k, v, scale, causal=causal)[:, :length]


def _fold(x: Tensor, shape: tuple[int, int]) -> Tensor:
    """[B L, ...] -> [B, L, ...]."""
    return x.reshape(*shape, *x.shape[1:])


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, *, causal: bool = False, mask: Tensor | None = None
) -> Tensor:
    dtype, kind = _type_of(v), q.device.type
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


def _type_of(v: Tensor) -> torch.dtype:
    """Of what attention gives. Positions and norms leave q and k in fp32 under autocast."""
    if torch.is_autocast_enabled(v.device.type) and v.dtype != torch.float64:
        return torch.get_autocast_dtype(v.device.type)
    return v.dtype


def _expand_groups(k: Tensor, v: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    if k.shape[1] == heads:
        return k, v
    assert heads % k.shape[1] == 0, (heads, k.shape)
    return k.repeat_interleave(heads // k.shape[1], 1), v.repeat_interleave(heads // k.shape[1], 1)


def _has_varlen(q: Tensor, v: Tensor) -> bool:
    """Whether the flash kernel for rows of segments takes these tensors."""
    return (
        q.is_cuda
        and _type_of(v) in (torch.bfloat16, torch.float16)
        and q.shape[-1] == v.shape[-1] <= 256
        and q.shape[-1] % 8 == 0
        and torch.cuda.get_device_capability(q.device) >= (8, 0)
    )


def _flash(
    q: Tensor, k: Tensor, v: Tensor, rows: Segments, columns: Segments, scale: float | None, sight: tuple[int, int]
) -> Tensor:
    """``sight``: how far a query sees to the left and to the right, -1 for without limit."""
    from torch.nn.attention.varlen import varlen_attn

    bounds = rows.cu_seqlens(q.device), columns.cu_seqlens(q.device)
    q, k, v = (x.to(_type_of(v)) for x in (q, k, v))
    out = varlen_attn(q, k, v, *bounds, rows.longest, columns.longest, scale=scale, window_size=sight)
    assert isinstance(out, Tensor)
    return out
