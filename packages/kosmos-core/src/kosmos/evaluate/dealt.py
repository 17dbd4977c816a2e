"""Documents dealt out to several processes in chunks of neighbours, and their answers in the order of the documents.

What is continued together are documents of one chunk. So an answer does not depend on who wrote it, nor on where an
earlier call ended, also where products round differently with their number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from kosmos.errors import SampleError
from kosmos.runtime.parallel import Parallel, plain_error

T = TypeVar("T")

LeaveOut = Callable[[int, SampleError], None]
"""Told of a row that cannot be used, and why."""
OfChunk = Callable[[Sequence[int], LeaveOut], Iterator[T]]
"""What becomes of the rows of a chunk, in their order."""


def chunks(rows: Sequence[int], size: int, behind: int) -> list[Sequence[int]]:
    """The rows, ascending, in chunks of ``size``, without those up to ``behind``: the first may be what is left."""
    parts = (rows[start : start + size] for start in range(0, len(rows), size))
    left = ([row for row in part if row > behind] if part[0] <= behind else part for part in parts)
    return [part for part in left if part]


def dealt(parts: Sequence[Sequence[int]], of_chunk: OfChunk[T], leave_out: LeaveOut, parallel: Parallel) -> Iterator[T]:
    """What becomes of all chunks, in their order. One process gives each thing as it is finished; of several all get
    all, once each of them has finished a chunk.

    Raises:
        KosmosError: ``of_chunk`` raised it in some process; all of them raise it.
    """
    ranks = parallel.world_size
    if ranks == 1:
        for part in parts:
            yield from of_chunk(part, leave_out)
        return
    for start in range(0, len(parts), ranks):
        own = parts[start : start + ranks][parallel.rank : parallel.rank + 1]
        for found, left in parallel.agreed(partial(_finished, own, of_chunk)):
            for row, error in left:
                leave_out(row, error)
            yield from found


def _finished(own: Sequence[Sequence[int]], of_chunk: OfChunk[T]) -> tuple[list[T], list[tuple[int, SampleError]]]:
    """What became of a process's chunk, if there is one, and which rows were left out, as others can be told."""
    left: list[tuple[int, SampleError]] = []
    found = [one for part in own for one in of_chunk(part, lambda row, error: left.append((row, plain_error(error))))]
    return found, left
