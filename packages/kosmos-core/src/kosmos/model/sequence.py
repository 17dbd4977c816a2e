"""Sequence parallelism: the ranks of a group share a row, each with a contiguous part of its tokens.

All but attention treats tokens one by one. Around attention ranks exchange tokens for heads: each then has every token
of some of the heads, so that kernels, documents and positions are those of a whole row. Parts differ by one token at
most; a part may be empty.

Source: DeepSpeed-Ulysses, arXiv 2309.14509; here rows are packed, uneven, and their media are encoded where their slots
are: an item across a border by the ranks on both sides.

Letters: N = ranks of a group, T = tokens of the row, t = tokens of a rank's part, H = heads, G = heads of keys and
values, d = width of a head, n = trained positions of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor

from kosmos.data.batch import MediaArrays, PackedBatch, trained_in
from kosmos.data.processor import Grid
from kosmos.data.slots import SlotCount
from kosmos.data.transfer import to_device
from kosmos.model.attention import attend
from kosmos.model.loss import TokenLosses
from kosmos.model.segments import Segments


@dataclass(frozen=True)
class SequenceGroup:
    """The ranks that share a row, as one of them sees them."""

    group: dist.ProcessGroup
    rank: int
    size: int

    @staticmethod
    def of(group: dist.ProcessGroup) -> SequenceGroup:
        return SequenceGroup(group, dist.get_rank(group), dist.get_world_size(group))

    def sizes(self, tokens: int) -> list[int]:
        """Tokens of each rank's part."""
        return [(tokens + self.size - 1 - rank) // self.size for rank in range(self.size)]

    def bounds(self, tokens: int) -> tuple[int, int]:
        """Begin and end of this rank's part."""
        sizes = self.sizes(tokens)
        begin = sum(sizes[: self.rank])
        return begin, begin + sizes[self.rank]


@dataclass(unsafe_hash=True)
class SharedSegments(Segments):
    """Documents of a whole row, of which this rank has a part."""

    ranks: SequenceGroup


class RowPart(NamedTuple):
    """This rank's part of a row."""

    seen: PackedBatch
    """The part and as much around it as its items of media reach: what is embedded; only its tokens and media are."""
    own: slice
    """The part in ``seen``."""
    position_ids: Tensor
    """[t]."""
    labels: Tensor
    """[t]."""
    trained: Tensor
    """As of ``PackedBatch``, of the part."""
    weights: Tensor | None
    """Likewise."""
    segments: SharedSegments


def part_of(batch: PackedBatch, ranks: SequenceGroup, slots: Mapping[str, SlotCount]) -> RowPart:
    """This rank's part of a row that all ranks of the group have.

    Args:
        slots: how many slots an item of each stream fills.
    """
    host = batch.host or batch
    begin, end = ranks.bounds(len(batch.token_ids))
    low, high, media = begin, end, {}
    for name, here in host.media.items():
        places = here.slots.tolist()
        media[name], reached = _items(batch.media[name], places, begin, end, slots[name])
        if reached:
            low, high = min(low, reached[0]), max(high, reached[-1] + 1)
    media = {name: replace(m, slots=m.slots - low) for name, m in media.items()}
    seen = replace(batch, token_ids=batch.token_ids[low:high], media=media)
    own = slice(begin, end)
    trained = to_device(trained_in(host.labels[own]), batch.labels.device)
    weights = None if batch.weights is None else batch.weights[_targets_within(host, begin, end)]
    return RowPart(
        seen, slice(begin - low, end - low), batch.position_ids[own], batch.labels[own], trained, weights,
        SharedSegments(batch.lengths, ranks),
    )  # fmt: skip


def _targets_within(row: PackedBatch, begin: int, end: int) -> slice:
    """Which of a row's trained positions, on the CPU, lie in [begin, end)."""
    first, last = torch.searchsorted(row.trained, torch.tensor([begin, end])).tolist()
    return slice(first, last)


def _items(
    media: MediaArrays, places: list[int], begin: int, end: int, slots: SlotCount
) -> tuple[MediaArrays, list[int]]:
    """Items with a slot in [begin, end), and their slots of ``places``; items stand in the order of their slots."""
    grids = [Grid(*grid) for grid in media.grids.tolist()]
    slot = list(accumulate((slots(grid) for grid in grids), initial=0))
    cell = list(accumulate((grid.cells for grid in grids), initial=0))
    kept = [n for n in range(len(grids)) if any(begin <= place < end for place in places[slot[n] : slot[n + 1]])]
    first, last = (kept[0], kept[-1] + 1) if kept else (0, 0)
    filled = slice(slot[first], slot[last])
    own = MediaArrays(media.values[cell[first] : cell[last]], media.grids[first:last], media.slots[filled])
    return own, places[filled]


@torch.compiler.disable  # type: ignore[untyped-decorator]  # as ``attend``
def attend_shared(q: Tensor, k: Tensor, v: Tensor, segments: SharedSegments) -> Tensor:
    """Causal attention within the documents of the row. All ranks of the group call this.

    Args:
        q: [t, H, d], of this rank's part.
        k: [t, G, d]; N divides G.
        v: [t, G, d].

    Returns:
        [t, H, d].
    """
    ranks, own = segments.ranks, q.shape[0]
    sizes = ranks.sizes(segments.total)
    assert own == sizes[ranks.rank], (own, sizes, ranks.rank)
    heads, even = [x.shape[1] // ranks.size for x in (q, k, v)], [own] * ranks.size
    mixed = torch.cat([x.view(own, ranks.size, h, x.shape[2]) for x, h in zip((q, k, v), heads, strict=True)], dim=2)
    arrived = _exchange(mixed.transpose(0, 1).flatten(0, 1), even, sizes, ranks.group)  # [T, (H + 2 G) / N, d]
    out = attend(*torch.split(arrived, heads, dim=1), segments, causal=True)  # [T, H / N, d]
    back = _exchange(out, sizes, even, ranks.group)
    return back.view(ranks.size, own, heads[0], back.shape[2]).transpose(0, 1).flatten(1, 2)


def of_whole_row(own: TokenLosses, batch: PackedBatch, ranks: SequenceGroup) -> TokenLosses:
    """The part's losses with those of the other parts beside them; ``total`` stays the sum of the part alone.

    Args:
        own: of the trained positions of this rank's part.
        batch: the row.
    """
    part = _targets_within(batch.host or batch, *ranks.bounds(len(batch.token_ids)))

    def whole(found: Tensor) -> Tensor:
        value = found.new_zeros(batch.num_targets)
        value[part] = found
        dist.all_reduce(value, group=ranks.group)
        return value

    predictions = own.predictions if torch.is_grad_enabled() else whole(own.predictions)
    return TokenLosses(own.total, whole(own.per_token), predictions)


def _exchange(x: Tensor, sent: list[int], taken: list[int], group: dist.ProcessGroup) -> Tensor:
    """All-to-all of consecutive rows: ``sent[r]`` go to rank r, ``taken[r]`` come from it."""
    return cast(Tensor, _Exchange.apply(x, sent, taken, group))  # type: ignore[no-untyped-call]


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sent: list[int], taken: list[int], group: dist.ProcessGroup) -> Tensor:
        ctx.sent, ctx.taken, ctx.group = sent, taken, group
        arrived = x.new_empty(sum(taken), *x.shape[1:])
        dist.all_to_all_single(arrived, x.contiguous(), taken, sent, group=group)
        return arrived

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return _exchange(gradients[0], ctx.taken, ctx.sent, ctx.group), None, None, None
