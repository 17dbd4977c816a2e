"""How many token slots an item fills: shared by the planner and the connectors, so that both agree.

Plain picklable objects without torch, because data workers count with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from operator import index
from typing import Any, Protocol

from kosmos.data.foreign import first_line
from kosmos.data.processor import Grid
from kosmos.errors import KosmosError, PluginError, SampleError, own_line


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


MOST = 2**26
"""Slots of an item, of which a plan holds the places: more than any row has tokens."""


def count_slots(slots: SlotCount, grid: Grid, stream: str) -> int:
    """The slots that an item fills, by the count of a stream's connector.

    Raises:
        PluginError: the count fails, or gives no whole number.
        SampleError: there are more than any row could hold.
    """
    try:
        count = slots(grid)
    except Exception as error:  # a seam: code of plugins. A connector's concerns the run, not one sample
        if isinstance(error, KosmosError | MemoryError):
            raise
        said = f"failed: {first_line(error)}{own_line(error, getattr(slots, '__module__', None))}"
        raise PluginError(f"{_who(slots, grid, stream)} {said}") from error
    count = count if type(count) is int else _whole(count, slots, grid, stream)
    if count > MOST:
        raise SampleError(f"takes {count:,} slots of stream {stream}, which no row can hold; make the medium smaller")
    return count


def _whole(count: Any, slots: SlotCount, grid: Grid, stream: str) -> int:
    """As Python's ``int``: a count may be one of numpy's."""
    try:
        return index(count)
    except TypeError:
        said = f"gave {count!r:.40}; expected a whole number of slots"
        raise PluginError(f"{_who(slots, grid, stream)} {said}") from None


def _who(slots: SlotCount, grid: Grid, stream: str) -> str:
    name = getattr(slots, "__qualname__", type(slots).__name__)
    return f"streams.{stream}.connector: its slot count {name}, asked for the grid {tuple(grid)},"
