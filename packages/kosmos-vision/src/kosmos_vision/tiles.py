"""Large pictures in tiles: how many rows and columns, where these stand among the tokens, and the tiles. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kosmos import Grid

ROW = "\n"
"""In front of each row of tiles, as plain text: a mark would be another token of every run, and text models know it."""


class Tiling(NamedTuple):
    """How many tiles a picture is split into."""

    rows: int
    columns: int

    @property
    def is_split(self) -> bool:
        """Whether there are tiles beside the picture as a whole."""
        return self.rows * self.columns > 1

    def layout(self, grid: Grid) -> tuple[str | Grid, ...]:
        """The whole picture, then its rows of tiles, each of them with the cells of ``grid``."""
        row: tuple[str | Grid, ...] = (ROW, *[grid] * self.columns)
        return (grid, *row * self.rows) if self.is_split else (grid,)


WHOLE = Tiling(1, 1)


def choose_tiling(size_px: tuple[int, int], tile_px: tuple[int, int], most: int) -> Tiling:
    """The rows and columns that make a picture smaller by least along the side that they make smaller by more; of
    equals the fewest tiles.

    Along each side there are no more than its pixels fill, the last one at least half: no side becomes longer than 4/3
    of what it is, but for one that is shorter than a tile.

    Args:
        size_px: (height, width) of the picture.
        tile_px: (height, width) of a tile.
        most: tiles.

    Source: ``select_best_resolution`` of LLaVA-NeXT, which takes the largest effective resolution and then the least
    waste; here among all grids, there of a list (``image_grid_pinpoints``), to which small pictures are enlarged.
    """
    (height, width), (tile_height, tile_width) = size_px, tile_px
    most_rows, most_columns = (
        max(1, (2 * size + tile) // (2 * tile)) for size, tile in zip(size_px, tile_px, strict=True)
    )
    best, found = (0.0, 0), WHOLE
    for rows in range(1, min(most, most_rows) + 1):
        kept = min(rows * tile_height, height)
        as_many = -(-kept * width // (height * tile_width))  # columns that make it no smaller across than rows do down
        columns = min(as_many, most_columns, most // rows)
        scale = min(kept / height, columns * tile_width / width)
        if (scale, -rows * columns) > best:
            best, found = (scale, -rows * columns), Tiling(rows, columns)
    return found


def cut_tiles(planes: NDArray[np.uint8], tiling: Tiling) -> Iterator[NDArray[np.uint8]]:
    """The tiles of a picture [3, H, W] in reading order, each [3, H / rows, W / columns]: views."""
    height, width = planes.shape[1] // tiling.rows, planes.shape[2] // tiling.columns
    for top in range(0, planes.shape[1], height):
        for left in range(0, planes.shape[2], width):
            yield planes[:, top : top + height, left : left + width]
