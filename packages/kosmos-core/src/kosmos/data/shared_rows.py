"""Rows on their way from a data worker: what they are through a pipe, their arrays in memory that both share.

The large arrays of a row are made there, sent as their places and used where they lie, so nothing is copied; the
memory is used again when the last of them is gone. A row of pictures of 2.5 MB would take 5.8 ms through a pipe. Where
a row is larger than a slot, or no slot is empty, its arrays go through the pipe: nobody waits for a slot.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Sequence
from math import prod
from multiprocessing.connection import Connection
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kosmos.data.shared_memory import aligned, open_memory

SLOT_BYTES = 32 * 1024 * 1024
"""Of address space; what is never written to takes no memory."""
_FLAGS_BYTES = mmap.PAGESIZE
"""The first page holds for each slot whether it is full: int64."""
MOST_SLOTS = _FLAGS_BYTES // 8


def open_slots(slots: int) -> int:
    """A file descriptor of empty memory for ``RowSender`` and ``RowReceiver``.

    Args:
        slots: rows that find room at once, at most ``MOST_SLOTS``.
    """
    return open_memory("kosmos-rows", _FLAGS_BYTES + min(slots, MOST_SLOTS) * SLOT_BYTES)


class _End:
    def __init__(self, pipe: Connection, memory: int) -> None:
        """
        Args:
            memory: of ``open_slots``; it may be closed afterwards.
        """
        self.pipe = pipe
        nbytes = os.fstat(memory).st_size
        self._memory = mmap.mmap(memory, nbytes)
        self.full = np.frombuffer(self._memory, np.int64, (nbytes - _FLAGS_BYTES) // SLOT_BYTES)

    def _stretch(self, slot: int, begin: int, size: int) -> NDArray[np.uint8]:
        """Part of a slot. Arrays over it keep it alive, and nothing else that is part of the slot."""
        return np.frombuffer(self._memory, np.uint8, size, _FLAGS_BYTES + slot * SLOT_BYTES + begin)


class RowSender(_End):
    """The worker's end."""

    _slot: int | None = None
    """Where the arrays of the row under way lie."""
    _address = 0
    """Where that begins in this process's memory."""
    _used = 0
    """Bytes of it."""

    def room(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """An array to be filled that needs no copying when it is sent with the next row."""
        self._begin()
        there = self._take(prod(shape) * np.dtype(dtype).itemsize)
        return np.empty(shape, dtype) if there is None else there.view(dtype).reshape(shape)

    def _begin(self) -> None:
        """Find a slot for the row, if one is empty and it has none."""
        if self._slot is None and not self.full.all():
            self._slot, self._used = int(self.full.argmin()), 0
            self._address = _address(self._stretch(self._slot, 0, SLOT_BYTES))

    def _take(self, size: int) -> NDArray[np.uint8] | None:
        """The next ``size`` bytes of the slot; None where they find no room, or are none."""
        begin = aligned(self._used)
        if self._slot is None or not size or begin + size > SLOT_BYTES:
            return None
        self._used = begin + size
        return self._stretch(self._slot, begin, size)

    def send(self, item: Any) -> None:
        """Any object that can be pickled."""
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(item, protocol=5, buffer_callback=buffers.append)
        parts = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        self._begin()
        places = [self._put(part) for part in parts]
        slot, self._slot = self._slot, None
        if slot is None or None in places or not parts:
            self.pipe.send((head, None, [len(part) for part in parts]))
            for buffer in buffers:
                self.pipe.send_bytes(buffer.raw())
            return
        self.full[slot] = 1
        self.pipe.send((head, slot, [(place, len(part)) for place, part in zip(places, parts, strict=True)]))

    def _put(self, part: NDArray[np.uint8]) -> int | None:
        """Where in the slot ``part`` lies, copied there where it lies elsewhere; None where it finds no room."""
        if self._slot is None:
            return None
        if not len(part):
            return 0
        if not 0 <= _address(part) - self._address < SLOT_BYTES:
            there = self._take(len(part))
            if there is None:
                return None
            there[:] = part
            part = there
        return _address(part) - self._address


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


class RowReceiver(_End):
    """The parent's end."""

    def receive(self) -> Any:
        """What was sent; its arrays are this process's alone and may be written to.

        Raises:
            EOFError: the worker is dead.
        """
        head, slot, sizes = self.pipe.recv()
        if slot is None:
            parts = [np.empty(size, np.uint8) for size in sizes]
            for part in parts:
                self.pipe.recv_bytes_into(part)
        else:
            parts = self._parts(slot, sizes)
        return pickle.loads(head, buffers=parts)  # noqa: S301  of a worker that this process started

    def _parts(self, slot: int, places: Sequence[tuple[int, int]]) -> list[NDArray[np.uint8]]:
        """The stretches of a slot, which is empty again when nothing uses any of them."""
        whole = self._stretch(slot, 0, max(place + size for place, size in places))
        finalize(whole, self.full.__setitem__, slot, 0).atexit = False
        return [whole[place : place + size] for place, size in places]
