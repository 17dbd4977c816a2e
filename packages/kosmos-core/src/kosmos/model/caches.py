"""Keys and values of documents that are continued.

Letters: H = heads, G = heads of keys and values, d = width of a head (that of values may be another).
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor

from kosmos.data.transfer import to_device
from kosmos.model.attention import attend, attend_each
from kosmos.model.segments import Segments

ROOM = 64
"""Tokens by which buffers grow."""


class KeyValueCache:
    """Keys and values of one document for each layer, in buffers that double when they are full."""

    def __init__(self, layers: int) -> None:
        self._buffers: list[tuple[Tensor, Tensor] | None] = [None] * layers
        self._lengths = [0] * layers

    @property
    def length(self) -> int:
        """Tokens seen so far: the position of the next one."""
        return self._lengths[-1]

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append [t, G, d] each; returns all keys and values [S, G, d] so far."""
        start, buffers = self._lengths[layer], self._buffers[layer]
        end = start + k.shape[0]
        if buffers is None or buffers[0].shape[0] < end:
            room = max(ROOM, 2 * end)
            grown = k.new_empty(room, *k.shape[1:]), v.new_empty(room, *v.shape[1:])
            if buffers is not None:
                grown[0][:start], grown[1][:start] = buffers[0][:start], buffers[1][:start]
            self._buffers[layer] = buffers = grown
        buffers[0][start:end], buffers[1][start:end] = k, v
        self._lengths[layer] = end
        return buffers[0][:end], buffers[1][:end]


class _Sight(NamedTuple):
    """What a row of one token of each document sees."""

    last: tuple[Tensor, Tensor]
    """Where the tokens themselves stand: document and place."""
    span: slice
    """Nothing beside it is seen."""
    seen: Tensor
    """bool [documents, places of the span]."""


class KeyValueBatch:
    """Keys and values of several documents that are continued together, a token of each at a time.

    What the first row brings are their prompts, one after the other; what each later one brings is one token of each.
    Buffers [documents, room, G, d] are as long as the longest wants them; what is behind the others is never seen.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}
        """By layer."""
        self._lengths = torch.zeros(0, dtype=torch.int64)
        """Of the documents, the row under way included."""
        self._prompts: Segments | None = None
        """While a first row is under way."""
        self._ends: Tensor | None = None
        """Of rows of one shape: where documents end, the row under way included."""

    @property
    def documents(self) -> int:
        """How many are in it."""
        return len(self._lengths)

    @property
    def length(self) -> int:
        """Tokens of the longest document so far."""
        return int(self._lengths.max()) if len(self._lengths) else 0

    def begin(self, segments: Segments) -> None:
        """Tell of a row, before its layers ``attend``."""
        if not len(self._lengths):
            self._prompts, self._lengths = segments, torch.tensor(segments.lengths)
            self._places: dict[torch.device, Tensor] = {}
            return
        assert segments.lengths == (1,) * len(self._lengths), (segments.lengths, len(self._lengths))
        self._prompts = None
        self._sights: dict[tuple[torch.device, int | None], _Sight] = {}
        if self._ends is None:
            self._lengths = self._lengths + 1

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
        by_kernels: bool = False,
    ) -> Tensor:
        """Append k, v [t, G, d], and attend from q [t, H, d] to all that each document has by then.

        Args:
            scale: of the logits; 1 / sqrt(d) by default.
            window: how many tokens a token sees at most, itself included.
            by_kernels: as of ``attend``, of prompts.
        """
        if self._prompts is not None:
            self._buffers[layer] = self._apart(k, self._prompts), self._apart(v, self._prompts)
            seen = attend(q, k, v, self._prompts, causal=True, scale=scale, window=window, by_kernels=by_kernels)
            return cast(Tensor, seen)
        if self._ends is None and self._buffers[layer][0].shape[1] < self.length:
            self._grow(layer)
        keys, values = self._buffers[layer]
        sight = self._sight(k.device, window)
        keys[sight.last], values[sight.last] = k, v
        return attend_each(q, keys[:, sight.span], values[:, sight.span], sight.seen, scale=scale)

    def fix(self, ends: Tensor) -> None:
        """Give the rows that follow one shape and fixed addresses, as a graph of a GPU holds them.

        Attention looks at all the room there is. Where documents end is read from ``ends``, int64 [documents] on their
        device, and counted no more: before each row, ``reserve`` and fill ``ends``; behind it, ``advance``.
        """
        self._ends = ends

    def reserve(self, more: int) -> None:
        """Make room for so many tokens of each. Where there is too little, addresses are others then."""
        while self.room < self.length + more:
            for layer in self._buffers:
                self._grow(layer)

    @property
    def room(self) -> int:
        """Tokens of a document that the buffers hold."""
        return next((keys.shape[1] for keys, _ in self._buffers.values()), 0)

    def ends(self) -> Tensor:
        """int64 [documents], on the CPU: what ``fix`` is given for the next row."""
        return self._lengths + 1

    def empty(self, which: Tensor) -> None:
        """Forget what these documents hold, int [documents] on the CPU; their rows stay."""
        self._lengths = self._lengths.index_fill(0, which, 0)

    def advance(self, which: Tensor) -> None:
        """Count the row before for these documents: int [documents], on the CPU. It is nothing to the others."""
        self._lengths = self._lengths.index_add(0, which, torch.ones_like(which))

    def keep(self, which: Tensor) -> None:
        """Leave out all documents but these: int [documents], on the CPU."""
        self._lengths = self._lengths[which]
        there = {device: to_device(which, device) for device in {k.device for k, _ in self._buffers.values()}}
        self._buffers = {n: (k[there[k.device]], v[there[k.device]]) for n, (k, v) in self._buffers.items()}

    def _apart(self, x: Tensor, prompts: Segments) -> Tensor:
        """[t, G, d] -> [documents, room, G, d], by one copy for all: each would be a launch of a GPU."""
        documents, room = len(prompts.lengths), (-(-prompts.longest // ROOM) + 1) * ROOM
        if x.device not in self._places:
            shift = torch.arange(documents) * room - torch.tensor(prompts.bounds[:-1])
            places = torch.arange(prompts.total) + shift.repeat_interleave(self._lengths)
            self._places[x.device] = to_device(places, x.device)
        apart = x.new_zeros(documents * room, *x.shape[1:]).index_copy_(0, self._places[x.device], x)
        return apart.view(documents, room, *x.shape[1:])

    def _sight(self, device: torch.device, window: int | None) -> _Sight:
        """Made once a row: it is the same in all layers of a device that have the window."""
        if (device, window) not in self._sights:
            if self._ends is not None:
                ends, span = self._ends, slice(0, self.room)
            else:
                first = max(0, int(self._lengths.min()) - window) if window else 0
                ends, span = to_device(self._lengths, device), slice(first, self.length)
            places = torch.arange(span.start, span.stop, device=device)
            seen = places < ends[:, None]
            if window:
                seen &= places >= ends[:, None] - window
            last = torch.arange(len(ends), device=device), ends - 1
            self._sights[device, window] = _Sight(last, span, seen)
        return self._sights[device, window]

    def _grow(self, layer: int) -> None:
        keys, values = self._buffers[layer]
        self._buffers[layer] = _longer(keys), _longer(values)


def _longer(x: Tensor) -> Tensor:
    """Twice as long, so that growing costs little however long documents become."""
    return torch.cat([x, torch.zeros_like(x)], 1)
