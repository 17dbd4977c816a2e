"""Pictures that keep their own shape: the rows and columns of cells that stand for one. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import NamedTuple

MOST_STRETCH = 1.25
"""Times that a picture made smaller for the budget becomes wider or higher against its other side, where there is a
choice: a budget of 6 cells has one for all pictures but those so long that one row or column of it is too short."""


class _Side(NamedTuple):
    """One side of a picture."""

    px: int
    patch_px: int
    least: int
    """Cells."""
    most: int
    """Cells: what the encoder takes, and no more than its pixels fill or begin to fill."""

    @property
    def full(self) -> int:
        """Cells that lose none of its pixels."""
        return max(self.least, -(-self.px // self.patch_px))

    def scale(self, cells: int) -> float:
        return cells * self.patch_px / self.px  # one rounding of whole numbers: equal scales are equal


def fit_cells(
    size_px: tuple[int, int],
    patch_px: tuple[int, int],
    max_cells: int,
    *,
    least: tuple[int, int] = (1, 1),
    most: tuple[int, int] | None = None,
) -> tuple[int, int]:
    """(rows, columns) for a picture that keeps its shape, up to whole cells.

    One that fits has each side rounded up to whole cells, so that nothing of it is lost. Others are made smaller: of
    all grids within ``max_cells`` that enlarge no side by a cell, the one with the largest *scale / stretch*: the scale
    of the side that it makes smaller by more, and how many times that side's scale the other has. Grids that stretch by
    more than ``MOST_STRETCH`` are taken only where there is no other.

    Args:
        size_px: (height, width) of the picture.
        patch_px: (height, width) of a cell.
        max_cells: at least as many as ``least`` has.
        least: rows and columns that the encoder takes.
        most: rows and columns that the encoder takes; None where there is no limit.

    Source: ``get_image_size_for_seq`` of timm (NaFlex) rounds up, too, and takes the largest scale of the smaller side
    alone: 300 x 3,000 pixels in 64 cells become 3 x 21, 1.43 times as high as they were, here 2 x 20. It enlarges small
    pictures to the budget; here they stay small.
    """
    high, wide = (
        _Side(size, patch, low, max(low, min(-(-size // patch), top)))
        for size, patch, low, top in zip(size_px, patch_px, least, most or (max_cells, max_cells), strict=True)
    )
    if high.full <= high.most and wide.full <= wide.most and high.full * wide.full <= max_cells:
        return high.full, wide.full
    if high.px * wide.patch_px <= wide.px * high.patch_px:
        rows, columns = max(_grids(high, wide, max_cells), key=lambda grid: _worth(high, wide, grid))
    else:
        columns, rows = max(_grids(wide, high, max_cells), key=lambda grid: _worth(wide, high, grid))
    return rows, columns


def _grids(short: _Side, long: _Side, max_cells: int) -> Iterator[tuple[int, int]]:
    """Cells of the short side and, for each number of them, the two of the long side that come next to its shape."""
    for cells in range(short.least, max(short.least, min(short.most, isqrt(max_cells), max_cells // long.least)) + 1):
        most = min(long.most, max_cells // cells)
        down = cells * short.patch_px * long.px // (short.px * long.patch_px)
        for others in (down, down + 1):
            yield cells, min(max(others, long.least), most)


def _worth(short: _Side, long: _Side, grid: tuple[int, int]) -> tuple[bool, float]:
    scales = short.scale(grid[0]), long.scale(grid[1])
    lower, higher = min(scales), max(scales)
    return higher <= MOST_STRETCH * lower, lower * lower / higher
