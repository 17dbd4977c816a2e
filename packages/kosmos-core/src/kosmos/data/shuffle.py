"""The order of an epoch where rows are read in blocks: every row once, at random, and few blocks at a time."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Blocks, Source
from kosmos.data.foreign import called, said
from kosmos.errors import DataError


def blocks_of(source: Source) -> Blocks | None:
    """What ``source.blocks()`` says; None where it has no such method, because it reads each document alone.

    Raises:
        DataError: it raises, or gives something else.
    """
    blocks = said(source, "blocks")
    if blocks is None:
        return None
    if not isinstance(blocks, Blocks) or np.shape(blocks.of) != (len(source),) or blocks.at_once < 1:
        raise DataError(
            f"{source.name}: {called(source, 'blocks')}: expected Blocks of {len(source)} documents, at least 1 at "
            f"once, got {blocks!r:.80}"
        )
    return blocks


def digest(blocks: Blocks) -> str:
    """What tells these blocks from others: an order goes on only among the same."""
    numbers = np.ascontiguousarray(blocks.of, np.int64)
    return blake2b(numbers.tobytes() + str(blocks.at_once).encode(), digest_size=8).hexdigest()


def in_blocks(blocks: Blocks, lanes: int, first: int, random: np.random.Generator) -> NDArray[np.int64]:
    """An order of the rows [rows]. Each lane, taking every ``lanes``-th place, meets a stretch of blocks of its own.

    Blocks come at random, so that neighbours, whose rows are often alike, are neighbours here by chance only, and the
    rows of ``at_once`` blocks that follow one another are shuffled.

    Args:
        lanes: how many take places in turn.
        first: the lane that takes the first place.
    """
    rows, ends = _block_by_block(np.asarray(blocks.of), random)
    order, begin = np.empty_like(rows), 0
    for lane in range(lanes):
        places = order[(lane - first) % lanes :: lanes]
        end = begin + len(places)
        stretch = rows[begin:end]
        block = int(np.searchsorted(ends, begin, side="right"))
        while begin < end:
            block += blocks.at_once
            cut = min(end, int(ends[min(block, len(ends)) - 1]))
            random.shuffle(rows[begin:cut])
            begin = cut
        places[:] = stretch
    return order


def _block_by_block(of: NDArray[np.int64], random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows, a block after the other in random order: [rows]; and where each block ends: [blocks]."""
    rows = np.argsort(of, kind="stable")
    starts = np.flatnonzero(np.diff(of[rows], prepend=of[rows[0]] - 1))
    counts = np.diff(starts, append=len(of))
    chosen = random.permutation(len(starts))
    ends = np.cumsum(counts[chosen])
    moved_by = starts[chosen] - (ends - counts[chosen])
    return rows[np.repeat(moved_by, counts[chosen]) + np.arange(len(of))], ends
