"""Lengths of the stretches that share a packed row: documents of a batch, items of an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from kosmos.data.transfer import to_device


@dataclass(unsafe_hash=True)
class Segments:
    """Lengths as plain integers, so that no device is asked for them. They never change.

    Not declared frozen: torch's compiler looks into every field of a frozen dataclass that it meets, and would compile
    a block again for the lengths of every row.
    """

    lengths: tuple[int, ...]

    @staticmethod
    def of_grids(grids: Tensor) -> Segments:
        """One segment an item; ``grids`` int64 [items, 3] on the CPU."""
        return Segments(tuple(grids.prod(dim=1).tolist()))

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """Cumulated lengths, beginning with 0."""
        return tuple(accumulate(self.lengths, initial=0))

    @property
    def total(self) -> int:
        return self.bounds[-1]

    @property
    def longest(self) -> int:
        return max(self.lengths, default=0)

    def places(self) -> Tensor:
        """int64 [total] on the CPU: which of its segment each row is, from 0."""
        starts = torch.tensor(self.bounds[:-1], dtype=torch.int64)
        return torch.arange(self.total) - starts.repeat_interleave(torch.tensor(self.lengths, dtype=torch.int64))

    def cu_seqlens(self, device: torch.device) -> Tensor:
        """``bounds`` as int32 [segments + 1] on ``device``."""
        cache: dict[torch.device, Tensor] = self.__dict__.setdefault("_cu", {})
        if device not in cache:
            cache[device] = to_device(torch.tensor(self.bounds, dtype=torch.int32), device)
        return cache[device]
