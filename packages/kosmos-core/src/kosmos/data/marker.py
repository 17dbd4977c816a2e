"""Which sample a data worker is at, in memory that outlives it: four integers shared by file descriptor."""

from __future__ import annotations

import mmap

import numpy as np

from kosmos.data.lane import Touch

NBYTES = 4 * 8
NOTHING = -1
"""Stands for the source between samples."""


class Marker:
    """One end of the memory: the worker writes, its parent reads."""

    def __init__(self, fd: int) -> None:
        """
        Args:
            fd: of a file of ``NBYTES``; it may be closed afterwards.
        """
        self._numbers = np.frombuffer(mmap.mmap(fd, NBYTES), np.int64)

    def clear(self) -> None:
        self._numbers[:] = NOTHING, 0, 0, 0

    def set(self, touch: Touch | None) -> None:
        """Note what is under way; None when it is over."""
        self._numbers[:] = *(touch or (NOTHING, 0, 0)), self.count + 1

    @property
    def touch(self) -> Touch | None:
        """What is under way."""
        source, row, action = (int(n) for n in self._numbers[:3])
        return None if source == NOTHING else (source, row, action)

    @property
    def count(self) -> int:
        """How often it was written: stands still where the worker does."""
        return int(self._numbers[3])
