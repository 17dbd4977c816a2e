"""How many token slots an item fills: shared by the planner and the connectors, so that both agree.

Plain picklable objects without torch, because data workers count with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Protocol

from kosmos.data.processor import Grid


class SlotCount(Protocol):
    """Item grid to number of token slots."""

    def __call__(self, grid: Grid) -> int: ...


@dataclass(frozen=True, slots=True)
class OnePerCell:
    """Each cell fills one slot."""

    def __call__(self, grid: Grid) -> int:
        return grid.cells


@dataclass(frozen=True, slots=True)
class Pooled:
    """Blocks of ``t`` x ``h`` x ``w`` cells share a slot; blocks at the edge may be smaller."""

    t: int
    h: int
    w: int

    def __call__(self, grid: Grid) -> int:
        return ceil(grid.t / self.t) * ceil(grid.h / self.h) * ceil(grid.w / self.w)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every item fills ``slots`` slots, whatever its size."""

    slots: int

    def __call__(self, grid: Grid) -> int:
        return self.slots
