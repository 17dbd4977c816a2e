"""The order of an epoch: every row once, at random, and where rows are read in blocks, few blocks at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Blocks


def blocks_of(giver: Any) -> Any:
    """What ``giver.blocks()`` says; None where it has no such method, because it reads each row alone."""
    find = getattr(giver, "blocks", None)
    return find() if find else None


def in_blocks(blocks: Blocks, random: np.random.Generator) -> NDArray[np.int64]:
    """An order of the rows [rows]: blocks at random, and rows at random among ``at_once`` blocks in turn.

    Blocks that are neighbours in the data, whose rows are often alike, are neighbours here by chance only.
    """
    _, block = np.unique(blocks.of, return_inverse=True)
    place = random.permutation(block.max() + 1)[block]
    order: NDArray[np.int64] = np.lexsort((random.permutation(len(block)), place // blocks.at_once))
    return order


def dealt(order: NDArray[np.int64], lanes: int, first: int) -> NDArray[np.int64]:
    """``order`` [rows], moved so that lanes who take places in turn each meet a stretch of it.

    Args:
        lanes: how many.
        first: the lane that takes the first place.
    """
    moved, begin = np.empty_like(order), 0
    for lane in range(lanes):
        places = moved[(lane - first) % lanes :: lanes]
        places[:] = order[begin : begin + len(places)]
        begin += len(places)
    return moved
