"""Which documents of a packed row attend in one call.

Letters: T = tokens of the row, H = heads, d = width of a head; L = places of a document in its call, padding included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

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

    device: torch.device
    count: int
    length: int
    """L."""
    begin: int = 0
    """Of a run: its first token."""
    own: int = 0
    """Of a run: tokens of each document, the others up to L are padding."""
    tokens: Tensor | None = None
    """int64 [count x L]: the token in each place, any where there is none. None for a run."""
    filled: Tensor | None = None
    """int64: the places that hold a token; None where all do."""
    empty: Tensor | None = None
    """int64: the others."""
    seen: Tensor | None = None
    """bool [count, 1, 1, L]: which keys are tokens, where no causal mask hides those that are padding."""

    def take(self, x: Tensor, dtype: torch.dtype, *, clear: bool = False) -> Tensor:
        """[T, H, d] -> [count, H, L, d]. Padding of a run is zero, other padding too with ``clear``, else anything."""
        heads, width = x.shape[1:]
        if self.tokens is not None:
            found = x.index_select(0, self.tokens).to(dtype)
            if clear and self.empty is not None:
                found.index_fill_(0, self.empty, 0)
            return found.view(self.count, self.length, heads, width).transpose(1, 2)
        mine = x[self.begin : self.begin + self.count * self.own].view(self.count, self.own, heads, width)
        if self.length == self.own:
            mine = mine.to(dtype)
            return (mine if mine.stride(-1) == 1 else mine.contiguous()).transpose(1, 2)  # as kernels want it
        found = x.new_empty(self.count, heads, self.length, width, dtype=dtype)
        found[:, :, : self.own].copy_(mine.transpose(1, 2))
        found[:, :, self.own :] = 0
        return found

    def found(self, x: Tensor) -> Tensor:
        """[count, H, L, d] -> its tokens alone, [tokens, H, d]."""
        if self.tokens is None:
            return x[:, :, : self.own].transpose(1, 2).flatten(0, 1)
        x = x.transpose(1, 2).flatten(0, 1)
        return x if self.filled is None else x.index_select(0, self.filled)

    @cached_property
    def places(self) -> Tensor:
        """int64 [count x L]: the token in each place; not of runs with padding."""
        if self.tokens is not None:
            return self.tokens
        return torch.arange(self.begin, self.begin + self.count * self.own, device=self.device)

    @cached_property
    def rows(self) -> Tensor:
        """int64: the tokens of ``found``."""
        return self.places if self.filled is None else self.places[self.filled]

    def put(self, x: Tensor, out: Tensor) -> None:
        """[count, H, L, d] to where its tokens stand in [T, H, d], in place."""
        if self.tokens is None:
            mine = out[self.begin : self.begin + self.count * self.own]
            mine.view(self.count, self.own, *out.shape[1:]).copy_(x[:, :, : self.own].transpose(1, 2))
        else:
            out.index_copy_(0, self.rows, self.found(x).to(out.dtype))


def tell_padding(groups: Sequence[Group], segments: Segments, q: Tensor, v: Tensor) -> None:
    """Say to whoever counts operations what of attention in ``groups`` is padding. q, v: [T, H, width]."""
    wasted = sum(group.count * group.length**2 for group in groups) - sum(n * n for n in segments.lengths)
    if wasted:
        attention_of_padding(q, v.shape[2], wasted)


# Of its own, because a counter of operations sees no lengths in a call.
@library.custom_op("kosmos::attention_of_padding", mutates_args=())
def attention_of_padding(q: Tensor, width: int, pairs: int) -> None:
    """Of each head of ``q`` [T, H, d], with values of ``width``, so many pairs of places are looked at for nothing."""


@attention_of_padding.register_fake
def _(q: Tensor, width: int, pairs: int) -> None:
    """Nothing is given."""


def groups_of(segments: Segments, *, causal: bool, device: torch.device, long: int | None = None) -> list[Group]:
    """All documents of a row that are not empty.

    Kept with the row, because every layer asks again; not beyond it, because a tensor made in inference mode or under
    a fake tensor mode must not meet a training step.

    Args:
        long: documents of more tokens are padded to a multiple of ``LONG_STEP``; None pads none.
    """
    kept: dict[Any, list[Group]] = segments.__dict__.setdefault("_groups", {})
    asked = causal, device, long
    if asked not in kept:
        documents = [(begin, n) for begin, n in zip(segments.bounds, segments.lengths, strict=False) if n]
        alike = len({n for _, n in documents}) == 1
        short = [] if alike else [d for d in documents if d[1] <= SHORT]
        rest = documents if alike else [d for d in documents if d[1] > SHORT]
        kept[asked] = [*_buckets(short, causal, device), *_runs(rest, causal, device, long)]
    return kept[asked]


def _runs(documents: list[tuple[int, int]], causal: bool, device: torch.device, long: int | None) -> Iterator[Group]:
    """(begin, length) of documents -> neighbours of one length together."""
    # Along a run each document begins where the one before it ends.
    numbered = groupby(enumerate(documents), key=lambda item: (item[1][1], item[1][0] - item[0] * item[1][1]))
    for (length, _), run in numbered:
        members = [document for _, document in run]
        padded = rounded(length, LONG_STEP) if long is not None and length > long else length
        hidden = padded > length and not causal
        seen = to_device((torch.arange(padded) < length)[None, None, None], device) if hidden else None
        yield Group(device, len(members), padded, members[0][0], length, seen=seen)


def _buckets(documents: list[tuple[int, int]], causal: bool, device: torch.device) -> Iterator[Group]:
    """(begin, length) of documents -> those of nearly one length together."""
    members: dict[int, list[tuple[int, int]]] = {}
    for document in documents:
        members.setdefault(rounded(document[1], STEP), []).append(document)
    for padded, own in members.items():
        begins, lengths = (np.array(x)[:, None] for x in zip(*own, strict=True))
        place = np.arange(padded)
        real = place < lengths
        tokens = to_device(torch.from_numpy(np.where(real, begins + place, begins).ravel()), device)
        if real.all():
            yield Group(device, len(own), padded, tokens=tokens)
            continue
        filled, empty = (to_device(torch.from_numpy(np.flatnonzero(x)), device) for x in (real, ~real))
        # Under a causal mask padding stands behind all that could see it.
        seen = None if causal else to_device(torch.from_numpy(real)[:, None, None], device)
        yield Group(device, len(own), padded, tokens=tokens, filled=filled, empty=empty, seen=seen)
