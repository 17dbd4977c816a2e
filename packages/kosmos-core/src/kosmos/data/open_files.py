"""Reads of the files that hold rows. They stay open between two rows: to open one takes as long as to parse a row."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import BinaryIO

from kosmos.data.file_state import CHANGED, State, has_changed, state_of
from kosmos.data.unpacked import is_packed, unpacked
from kosmos.errors import SampleError
from kosmos.open_limit import IN_VAIN, may_open

MOST_OPEN = 32
"""Files that a process keeps open, those read last; fewer where it may open few."""
MOST_AT_ONCE = 1 << 30
"""Bytes of one read: macOS refuses more than 2 GiB, and Linux reads no more."""
LOOK_S = 0.005
"""Seconds in which one does not look twice whether a file is as it was: that takes 1 microsecond, where a small sample
of an archive takes 36."""


@dataclass(slots=True)
class _Open:
    descriptor: int
    state: State
    """As it was when it was last looked at; of a compressed file when it was opened, which what it was unpacked into
    does not tell."""
    look_at: float
    """When to look again, by ``monotonic``."""


_open: dict[str, _Open] = {}
_lock = Lock()


def read_bytes(path: Path, begin: int, end: int, known: State | None = None, *, may_grow: bool = False) -> bytes:
    """Bytes ``begin`` to ``end`` of a file, unpacked where it is compressed; fewer where it ends.

    Args:
        known: what it was when its rows were found; None reads it whatever it is now.
        may_grow: as of ``has_changed``.

    Raises:
        OSError: it cannot be opened or read.
        SampleError: it is another than it was.
    """
    parts: list[bytes] = []
    with _lock:
        file = _descriptor(_key(path))
        descriptor = file.descriptor
        while begin < end and (part := os.pread(descriptor, min(end - begin, MOST_AT_ONCE), begin)):
            parts.append(part)  # over a network it may be less than was asked for
            begin += len(part)
        if known is not None:
            if (now := monotonic()) >= file.look_at:  # behind the read, so that what is written meanwhile is noticed
                found = os.fstat(descriptor)
                file.state, file.look_at = (found.st_size, found.st_mtime_ns), now + LOOK_S
            if file.state != known and has_changed(file.state, known, may_grow=may_grow):
                raise SampleError(CHANGED)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def open_rows(path: Path) -> BinaryIO:
    """A file to be read from its beginning, unpacked where it is compressed. Raises OSError as ``read_bytes``."""
    return unpacked(path).open("rb")


def forget(path: Path) -> None:
    """Open the file anew at the next read: what is known of its rows is of the file that is there now."""
    with _lock:
        if (found := _open.pop(_key(path), None)) is not None:
            os.close(found.descriptor)


def forget_all() -> None:
    """Close what is open: after a look at some rows, so that processes that are forked get none of it."""
    with _lock:
        _close_all()


def _close_all() -> None:
    while _open:
        os.close(_open.popitem()[1].descriptor)


def _key(path: Path) -> str:
    name = str(path)
    return name if name.startswith("/") else os.path.abspath(name)


def _descriptor(key: str) -> _Open:
    found = _open.pop(key, None)
    if found is None:
        while len(_open) >= may_open(MOST_OPEN):
            os.close(_open.pop(next(iter(_open))).descriptor)
        try:
            found = _opened(Path(key))
        except OSError as error:
            if error.errno not in IN_VAIN or not _open:
                raise
            _close_all()
            found = _opened(Path(key))
    _open[key] = found  # the one used last at the end
    return found


def _opened(path: Path) -> _Open:
    if is_packed(path.name):
        file = unpacked(path)  # in front of the look, so that what is written meanwhile is noticed
        return _Open(os.open(file, os.O_RDONLY | os.O_CLOEXEC), state_of(path), inf)
    return _Open(os.open(path, os.O_RDONLY | os.O_CLOEXEC), state_of(path), 0.0)
