"""Connectors: from an encoder's features to the token slots of the backbone.

Letters: N = cells, M = slots, D_enc = width of the features, D = width of the backbone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kosmos.data.processor import Grid
from kosmos.data.slots import OnePerCell, Pooled, SlotCount
from kosmos.data.transfer import to_device
from kosmos.errors import ConfigError
from kosmos.model.precision import exact_type


def pool_grids(features: Tensor, grids: Tensor, pool: Pooled) -> Tensor:
    """Average the cells of each block; blocks at an item's edge average what they have.

    Args:
        features: [N, D_enc], items one after another in the order of ``grids``.
        grids: int64 [items, 3] (t, h, w) on the CPU, N = sum of their products. May be empty.
        pool: size of a block.

    Returns:
        [M, D_enc], M = sum of ``pool`` over the items.
    """
    items = [Grid(*row) for row in grids.tolist()]
    assert features.shape[0] == sum(item.cells for item in items), (features.shape, grids)
    slots, weights, start = [np.zeros(0, dtype=np.int64)], [np.zeros(0)], 0
    for item in items:
        slot, weight = _blocks(item, pool)
        slots.append(slot + start)
        weights.append(weight)
        start += pool(item)
    exact = exact_type(features)
    share = to_device(torch.tensor(np.concatenate(weights), dtype=exact), features.device)[:, None]
    index = to_device(torch.tensor(np.concatenate(slots)), features.device)
    pooled = torch.zeros(start, features.shape[1], dtype=exact, device=features.device)
    return pooled.index_add(0, index, features.to(exact) * share).to(features.dtype)


@lru_cache(maxsize=256)
def _blocks(grid: Grid, pool: Pooled) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Of each cell of an item: the number of its block, and one over that block's cells."""
    t, h, w = (np.arange(n) // step for n, step in zip(grid, (pool.t, pool.h, pool.w), strict=True))
    rows, columns = -(-grid.h // pool.h), -(-grid.w // pool.w)
    blocks = ((t[:, None, None] * rows + h[:, None]) * columns + w).ravel()
    return blocks, 1.0 / np.bincount(blocks, minlength=1)[blocks]


class LinearConnector(nn.Module):
    """One linear map for each cell, after a layer norm.

    Args:
        width_in: features of a cell.
        width_out: width of the backbone.
        norm: normalize the features first, because encoders differ in scale.
    """

    def __init__(self, width_in: int, width_out: int, *, norm: bool = True) -> None:
        super().__init__()
        self.slots: SlotCount = OnePerCell()
        self.norm = nn.LayerNorm(width_in) if norm else nn.Identity()
        self.linear = nn.Linear(width_in, width_out)

    def forward(self, features: Tensor, grids: Tensor) -> Tensor:
        """[N, width_in] -> [N, width_out]."""
        out: Tensor = self.linear(self.norm(features))
        return out


class MLPConnector(nn.Module):
    """A layer norm and two linear maps with a GELU between, for each cell or each block of cells.

    Args:
        width_in: features of a cell.
        width_out: width of the backbone.
        hidden: width between the two maps; that of the backbone by default.
        pool: cells (t, h, w) that are averaged into one slot first.
        norm: normalize the features first, because encoders differ in scale.
    """

    def __init__(
        self,
        width_in: int,
        width_out: int,
        *,
        hidden: int | None = None,
        pool: tuple[int, int, int] = (1, 1, 1),
        norm: bool = True,
    ) -> None:
        super().__init__()
        if min(pool) < 1:
            raise ConfigError(f"pool: expected three numbers of 1 or more, got {pool}")
        hidden = hidden or width_out
        self.pool = None if tuple(pool) == (1, 1, 1) else Pooled(*pool)
        self.slots: SlotCount = self.pool or OnePerCell()
        self.norm = nn.LayerNorm(width_in) if norm else nn.Identity()
        self.layers = nn.Sequential(nn.Linear(width_in, hidden), nn.GELU(), nn.Linear(hidden, width_out))

    @staticmethod
    def in_effect(options: dict[str, Any]) -> dict[str, Any]:
        """Options without ``hidden``, of which the shapes of weights tell, to compare two connectors."""
        return {name: value for name, value in options.items() if name != "hidden"}

    def forward(self, features: Tensor, grids: Tensor) -> Tensor:
        """[N, width_in] -> [M, width_out]."""
        features = self.norm(features)
        if self.pool is not None:
            features = pool_grids(features, grids, self.pool)
        out: Tensor = self.layers(features)
        return out


class PoolConnector(MLPConnector):
    """Average blocks of each picture's grid, then an MLP: fewer slots for large grids.

    Args:
        width_in: features of a cell.
        width_out: width of the backbone.
        factor: cells a side of a block.
        time_factor: cells of a block in time.
        hidden: width between the two maps of the MLP; that of the backbone by default.
    """

    def __init__(
        self, width_in: int, width_out: int, *, factor: int = 2, time_factor: int = 1, hidden: int | None = None
    ) -> None:
        super().__init__(width_in, width_out, hidden=hidden, pool=(time_factor, factor, factor))
        self.slots = Pooled(time_factor, factor, factor)
