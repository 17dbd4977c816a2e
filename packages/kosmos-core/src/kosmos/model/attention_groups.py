"""Which documents of a packed row attend in one call.

Letters: T = tokens of the row, H = heads, d = width of a head; L = places of a document in its call, padding included;
P = places of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, library

from kosmos.data.transfer import to_device
from kosmos.model.recurring import rounded
from kosmos.model.segments import Segments

LONG_STEP = 32
"""What long documents are padded to multiples of where they are asked to be: each new shape would cost a kernel."""


class Sharing(NamedTuple):
    """Which documents share a call, and what is padded."""

    short: int
    """Documents of so many tokens or fewer share calls with others of nearly their length, from anywhere in the row;
    longer ones with neighbours of their own length."""
    step: int
    """The short ones are padded to a multiple of it."""
    long: int | None = None
    """Longer documents are padded to a multiple of ``LONG_STEP``, short ones too; None pads none."""
    products: Literal["none", "short", "all"] = "none"
    """Which of them attend by products. Their heads lie one after another; short ones share a call up to ``pairs``, and
    are a power of two in number: few shapes."""
    pairs: int = 0
    """Documents times L², of one call at most."""


PLAIN = Sharing(short=64, step=8)
"""For kernels of attention. Rows of 1,024 tokens in segments of 12-40 tokens, fp32, forward and backward, 4 heads of 32
/ 8 of 64, on one core: 5.8 / 19.9 ms, against 11.5 / 25.2 for a loop over segments, 8.6 / 25.1 for groups of exactly
equal length, 45 / 154 for one dense mask."""


@dataclass(frozen=True)
class Group:
    """Documents of one call: a run of neighbours of one length, or short ones from anywhere."""

    begin: int
    """Its first place in the row of places."""
    count: int
    length: int
    """L."""
    own: int | None = None
    """Of a run: tokens of each document, the others up to L are padding."""
    seen: Tensor | None = None
    """bool [count or 1, 1, 1, L]: which keys are tokens, where torch's kernel needs to be told."""
    products: bool = False
    """Whether its heads lie one after another within a document; else those of a token lie together."""

    def of(self, x: Tensor, heads: int | None = None) -> Tensor:
        """[P, H, d], or with ``heads`` [P H, d] -> its places of it, [count, H, L, d], a view."""
        each = heads or 1
        mine = x[self.begin * each : (self.begin + self.count * self.length) * each]
        shape = x.shape[1:] if heads is None else (heads, x.shape[1])
        if self.products:
            return mine.view(self.count, shape[0], self.length, shape[1])
        return mine.view(self.count, self.length, *shape).transpose(1, 2)


@dataclass(frozen=True)
class Groups:
    """All documents of a row, and the places that they take in their calls; with ``heads``, a place for each head."""

    each: tuple[Group, ...]
    places: Tensor | None = None
    """int64 [P] or [P H]: what is in each place, of the same document where it is padding. None where the row stays."""
    tokens: Tensor | None = None
    """int64 [T] or [T H]: the place of each token, or of each of its heads. None where the row stays."""
    empty: Tensor | None = None
    """int64, rising: places that are padding; None where there are none."""

    def spread(self, x: Tensor, *, clear: bool = False) -> Tensor:
        """[T or T H, ...] -> [P or P H, ...]. Padding is zero with ``clear``, else anything of its document."""
        if self.places is None:
            return x.contiguous()  # as kernels and products want it
        found = x.index_select(0, self.places)
        return found if self.empty is None or not clear else found.index_fill_(0, self.empty, 0)

    def gathered(self, x: Tensor) -> Tensor:
        """[P or P H, ...] -> [T or T H, ...]."""
        return x if self.tokens is None else x.index_select(0, self.tokens)


def tell_padding(groups: Groups, segments: Segments, q: Tensor, v: Tensor) -> None:
    """Say to whoever counts operations what of attention in ``groups`` is padding. q, v: [T, H, width]."""
    wasted = sum(group.count * group.length**2 for group in groups.each) - sum(n * n for n in segments.lengths)
    if wasted:
        attention_of_padding(q, v.shape[2], wasted)


# Of its own, because a counter of operations sees no lengths in a call.
@library.custom_op("kosmos::attention_of_padding", mutates_args=())
def attention_of_padding(q: Tensor, width: int, pairs: int) -> None:
    """Of each head of ``q`` [T, H, d], with values of ``width``, so many pairs of places are looked at for nothing."""


@attention_of_padding.register_fake
def _(q: Tensor, width: int, pairs: int) -> None:
    """Nothing is given."""


def groups_of(
    segments: Segments, *, causal: bool, device: torch.device, sharing: Sharing = PLAIN, heads: int | None = None
) -> Groups:
    """All documents of a row that are not empty, short ones first.

    Kept with the row, because every layer asks again; not beyond it, because a tensor made in inference mode or under
    a fake tensor mode must not meet a training step.

    Args:
        heads: each of so many has places of its own, as products need it.
    """
    kept: dict[Any, Groups] = segments.__dict__.setdefault("_groups", {})
    asked = causal, device, sharing, heads
    if asked not in kept:
        documents = [(begin, n) for begin, n in zip(segments.bounds, segments.lengths, strict=False) if n]
        alike = sharing.products == "none" and len({n for _, n in documents}) == 1
        short = [] if alike else [d for d in documents if d[1] <= sharing.short]
        rest = documents if alike else [d for d in documents if d[1] > sharing.short]
        kept[asked] = _placed([*_buckets(short, sharing), *_runs(rest, sharing)], causal, device, heads or 1)
    return kept[asked]


class _Members(NamedTuple):
    """(begin, length) of the documents of a group, and to how many places each is padded."""

    documents: list[tuple[int, int]]
    length: int
    run: bool
    products: bool


def _runs(documents: list[tuple[int, int]], sharing: Sharing) -> Iterator[_Members]:
    """Neighbours of one length together."""
    # Along a run each document begins where the one before it ends.
    numbered = groupby(enumerate(documents), key=lambda item: (item[1][1], item[1][0] - item[0] * item[1][1]))
    for (length, _), run in numbered:
        own = [document for _, document in run]
        yield _Members(own, _padded(length, 1, sharing), run=True, products=sharing.products == "all")


def _buckets(documents: list[tuple[int, int]], sharing: Sharing) -> Iterator[_Members]:
    """Those of nearly one length together."""
    members: dict[int, list[tuple[int, int]]] = {}
    for document in documents:
        members.setdefault(_padded(document[1], sharing.step, sharing), []).append(document)
    products = sharing.products != "none"
    for length, own in members.items():
        most = min(len(own), max(1, sharing.pairs // length**2)) if products else len(own)
        while own:
            count = 1 << min(most, len(own)).bit_length() - 1 if products else most
            yield _Members(own[:count], length, run=False, products=products)
            own = own[count:]


def _padded(length: int, step: int, sharing: Sharing) -> int:
    return rounded(length, step if sharing.long is None or length <= sharing.long else LONG_STEP)


def _placed(members: list[_Members], causal: bool, device: torch.device, heads: int) -> Groups:
    each, places, filled, at = [], [], [], 0
    for documents, length, run, products in members:
        begins, lengths = (np.array(x)[:, None] for x in zip(*documents, strict=True))
        place = np.arange(length)
        real = place < lengths
        # Under a causal mask padding stands behind all that could see it; products have it from ``empty``.
        shown = causal or products or real.all()
        hidden = None if shown else torch.from_numpy(real[:1] if run else real)[:, None, None]
        seen = None if hidden is None else to_device(hidden, device)
        each.append(Group(at, len(documents), length, documents[0][1] if run else None, seen, products))
        at += len(documents) * length
        of_heads = np.where(real, begins + place, begins)[..., None] * heads + np.arange(heads)
        there = np.broadcast_to(real[..., None], of_heads.shape)
        places.append((of_heads.swapaxes(1, 2) if products else of_heads).ravel())
        filled.append((there.swapaxes(1, 2) if products else there).ravel())
    taken, real = np.concatenate(places), np.concatenate(filled)
    if real.all() and (taken == np.arange(len(taken))).all():
        return Groups(tuple(each))
    tokens = np.empty(int(real.sum()), dtype=np.int64)
    tokens[taken[real]] = np.flatnonzero(real)
    empty = None if real.all() else np.flatnonzero(~real)
    on = [None if x is None else to_device(torch.from_numpy(x), device) for x in (taken, tokens, empty)]
    return Groups(tuple(each), *on)
