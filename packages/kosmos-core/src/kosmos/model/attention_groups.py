"""Which documents of a packed row attend in one call.

Letters: T = tokens of the row, H = heads, d = width of a head; L = places of a document in its call, padding included;
P = places of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, library

from kosmos.data.transfer import to_device
from kosmos.model.recurring import rounded
from kosmos.model.segments import Segments

SHORT, STEP = 64, 8
"""Documents up to the first length share calls, each padded to a multiple of the second.

Rows of 1,024 tokens in segments of 12-40 tokens, fp32, forward and backward, 4 heads of 32 / 8 of 64, on one core:
5.8 / 19.9 ms, against 11.5 / 25.2 for a loop over segments, 8.6 / 25.1 for groups of exactly equal length, 7.2 / 23.1
for explicit products and softmax in these buckets, 45 / 154 for one dense mask.
"""
LONG_STEP = 32
"""What long documents are padded to multiples of where they are asked to be: each new shape would cost a kernel."""


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
    """bool [count or 1, 1, 1, L]: which keys are tokens, where no causal mask hides those that are padding."""

    def of(self, x: Tensor) -> Tensor:
        """[P, H, d] -> its places of it, [count, H, L, d], a view."""
        mine = x[self.begin : self.begin + self.count * self.length]
        return mine.view(self.count, self.length, *x.shape[1:]).transpose(1, 2)


@dataclass(frozen=True)
class Groups:
    """All documents of a row, and the places that they take in their calls."""

    each: tuple[Group, ...]
    places: Tensor | None = None
    """int64 [P]: the token in each place, one of the same document where there is none. None where the row stays."""
    tokens: Tensor | None = None
    """int64 [T]: the place of each token. None where the row stays."""
    empty: Tensor | None = None
    """int64: places without a token; None where there are none."""

    def spread(self, x: Tensor, *, clear: bool = False) -> Tensor:
        """[T, H, d] -> [P, H, d]. Padding is zero with ``clear``, else anything of its document."""
        if self.places is None:
            return x if x.stride(-1) == 1 else x.contiguous()  # as kernels want it
        found = x.index_select(0, self.places)
        return found if self.empty is None or not clear else found.index_fill_(0, self.empty, 0)

    def gathered(self, x: Tensor) -> Tensor:
        """[P, H, d] -> [T, H, d]."""
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


def groups_of(segments: Segments, *, causal: bool, device: torch.device, long: int | None = None) -> Groups:
    """All documents of a row that are not empty.

    Kept with the row, because every layer asks again; not beyond it, because a tensor made in inference mode or under
    a fake tensor mode must not meet a training step.

    Args:
        long: documents of more tokens are padded to a multiple of ``LONG_STEP``; None pads none.
    """
    kept: dict[Any, Groups] = segments.__dict__.setdefault("_groups", {})
    asked = causal, device, long
    if asked not in kept:
        documents = [(begin, n) for begin, n in zip(segments.bounds, segments.lengths, strict=False) if n]
        alike = len({n for _, n in documents}) == 1
        short = [] if alike else [d for d in documents if d[1] <= SHORT]
        rest = documents if alike else [d for d in documents if d[1] > SHORT]
        kept[asked] = _placed([*_buckets(short), *_runs(rest, long)], causal, device)
    return kept[asked]


class _Members(NamedTuple):
    """(begin, length) of the documents of a group, and to how many places each is padded."""

    documents: list[tuple[int, int]]
    length: int
    run: bool


def _runs(documents: list[tuple[int, int]], long: int | None) -> Iterator[_Members]:
    """Neighbours of one length together."""
    # Along a run each document begins where the one before it ends.
    numbered = groupby(enumerate(documents), key=lambda item: (item[1][1], item[1][0] - item[0] * item[1][1]))
    for (length, _), run in numbered:
        padded = rounded(length, LONG_STEP) if long is not None and length > long else length
        yield _Members([document for _, document in run], padded, True)


def _buckets(documents: list[tuple[int, int]]) -> Iterator[_Members]:
    """Those of nearly one length together."""
    members: dict[int, list[tuple[int, int]]] = {}
    for document in documents:
        members.setdefault(rounded(document[1], STEP), []).append(document)
    for padded, own in members.items():
        yield _Members(own, padded, False)


def _placed(members: list[_Members], causal: bool, device: torch.device) -> Groups:
    each, places, filled, at = [], [], [], 0
    for documents, length, run in members:
        begins, lengths = (np.array(x)[:, None] for x in zip(*documents, strict=True))
        place = np.arange(length)
        real = place < lengths
        places.append(np.where(real, begins + place, begins).ravel())
        filled.append(real.ravel())
        # Under a causal mask padding stands behind all that could see it.
        hidden = None if causal or real.all() else torch.from_numpy(real[:1] if run else real)[:, None, None]
        seen = None if hidden is None else to_device(hidden, device)
        each.append(Group(at, len(documents), length, documents[0][1] if run else None, seen))
        at += len(documents) * length
    taken, real = np.concatenate(places), np.concatenate(filled)
    if real.all() and (taken == np.arange(at)).all():
        return Groups(tuple(each))
    tokens = np.empty(int(real.sum()), dtype=np.int64)
    tokens[taken[real]] = np.flatnonzero(real)
    empty = None if real.all() else np.flatnonzero(~real)
    on = [None if x is None else to_device(torch.from_numpy(x), device) for x in (taken, tokens, empty)]
    return Groups(tuple(each), *on)
