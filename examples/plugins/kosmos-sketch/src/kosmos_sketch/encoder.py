"""The encoder of sketches: a transformer over the patches of each. N = patches of all sketches of a row, D = width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kosmos import ItemTransformer, to_device
from kosmos_sketch.patches import MOST, PATCH
from kosmos_sketch.reading import SketchInput


class SketchEncoder(ItemTransformer):
    """A linear map of each patch, its row and its column, then transformer blocks within each sketch.

    Args:
        width: features of a patch.
        layers: transformer blocks.
        heads: attention heads; must divide ``width``.

    Raises:
        ConfigError: the numbers do not fit each other.
    """

    def __init__(self, *, width: int = 96, layers: int = 2, heads: int = 4) -> None:
        super().__init__(width=width, layers=layers, heads=heads, feed_forward=2)
        self.input = SketchInput()
        self.lift = nn.Linear(PATCH * PATCH, width)
        self.row = nn.Embedding(MOST // PATCH, width)
        self.column = nn.Embedding(MOST // PATCH, width)

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values uint8 [N, 16], grids int64 [items, 3] (1, rows, columns) on the CPU -> [N, D]. N may be 0."""
        row, column = (to_device(index, values.device) for index in places(grids))
        x = self.lift(values.to(self.row.weight.dtype) / 128 - 1) + self.row(row) + self.column(column)
        return self.transform(x, grids)


def places(grids: Tensor) -> tuple[Tensor, Tensor]:
    """Of each patch, its row and its column: two int64 [N], on the CPU like ``grids``."""
    cells = grids.prod(dim=1)
    starts = (cells.cumsum(0) - cells).repeat_interleave(cells)
    columns = grids[:, 2].repeat_interleave(cells)
    within = torch.arange(len(starts)) - starts
    return within // columns, within % columns
