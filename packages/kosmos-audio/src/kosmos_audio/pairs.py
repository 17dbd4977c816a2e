"""A connector that halves the cells of a sound in time: an average, a layer norm, a linear map."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kosmos import Grid, SlotCount, to_device


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two cells in time share a slot; an odd last one is dropped, unless it is the only one."""

    def __call__(self, grid: Grid) -> int:
        return max(grid.t // 2, 1) * grid.h * grid.w


class PairedConnector(nn.Module):
    """The end of Qwen2-Audio's encoder and its projector: pairs of cells averaged, then normalized and mapped.

    Args:
        width_in: features of a cell.
        width_out: width of the backbone.
    """

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.slots: SlotCount = Pairs()
        self.norm = nn.LayerNorm(width_in)
        self.linear = nn.Linear(width_in, width_out)

    def forward(self, features: Tensor, grids: Tensor) -> Tensor:
        """[N, width_in] -> [M, width_out], M the pairs of the items."""
        first, second = (to_device(index, features.device) for index in _pairs(grids))
        averaged = (features.index_select(0, first) + features.index_select(0, second)) / 2
        out: Tensor = self.linear(self.norm(averaged))
        return out


def _pairs(grids: Tensor) -> tuple[Tensor, Tensor]:
    """Which cells make each slot: int64 [M] twice; the same cell of an item that has one in time."""
    first, second, begin = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, dtype=torch.int64)], 0
    for t, h, w in grids.tolist():
        cells = begin + torch.arange(t * h * w).view(t, h * w)
        even = cells[: t // 2 * 2] if t > 1 else cells
        first.append(even[::2].flatten())
        second.append(even[t > 1 :: 2].flatten())
        begin += t * h * w
    return torch.cat(first), torch.cat(second)
