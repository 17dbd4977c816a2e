"""Which sample a data worker is at, and how far it has come, in memory that outlives it: five integers shared by file
descriptor."""

from __future__ import annotations

import mmap
import struct

from kosmos.data.lane import Touch

_NUMBERS = struct.Struct("=5q")
NBYTES = _NUMBERS.size
NOTHING = -1
"""Stands for the source between samples."""
_BETWEEN = (NOTHING, 0, 0)


class Marker:
    """One end of the memory: the worker writes, its parent reads."""

    def __init__(self, fd: int) -> None:
        """
        Args:
            fd: of a file of ``NBYTES``; it may be closed afterwards.
        """
        self._memory = mmap.mmap(fd, NBYTES)
        self._written, self._made = self.count, self.made

    def clear(self) -> None:
        self._written = self._made = 0
        self._memory[:] = _NUMBERS.pack(*_BETWEEN, 0, 0)

    def set(self, touch: Touch | None) -> None:
        """Note what is under way; None when it is over."""
        # In one copy: ``pack_into`` would write zeros first, which accuse sample 0 if the process dies then.
        self._written += 1
        source, row, action = touch or _BETWEEN
        self._memory[:] = _NUMBERS.pack(source, row, action, self._written, self._made)

    def turn_is_over(self) -> None:
        """Note that a turn of a lane has come to its end, before what it gave is sent."""
        self._made += 1
        self.set(None)

    @property
    def touch(self) -> Touch | None:
        """What is under way."""
        source, row, action, *_ = _NUMBERS.unpack_from(self._memory)
        return None if source == NOTHING else (source, row, action)

    @property
    def count(self) -> int:
        """How often it was written: stands still where the worker does."""
        return int(_NUMBERS.unpack_from(self._memory)[3])

    @property
    def made(self) -> int:
        """Turns that are over, taken or not."""
        return int(_NUMBERS.unpack_from(self._memory)[4])
