"""Reads of the files that hold rows. They stay open between two rows: to open one takes as long as to parse a row."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from kosmos.data.unpacked import unpacked

MOST_OPEN = 32
"""Files that a process keeps open, those read last."""
CHANGED = (
    "no row is here any more: the file was changed after its rows were found; leave data as they are while they are "
    "read, and write others under another name"
)
"""Of a row that is where it was no more."""
MOST_AT_ONCE = 1 << 30
"""Bytes of one read: macOS refuses more than 2 GiB, and Linux reads no more."""

_open: dict[str, int] = {}
_lock = Lock()


def read_bytes(path: Path, begin: int, end: int) -> bytes:
    """Bytes ``begin`` to ``end`` of a file, unpacked where it is compressed; fewer where it ends.

    Raises:
        OSError: it cannot be opened or read.
    """
    parts: list[bytes] = []
    with _lock:
        descriptor = _descriptor(_key(path))
        while begin < end and (part := os.pread(descriptor, min(end - begin, MOST_AT_ONCE), begin)):
            parts.append(part)  # over a network it may be less than was asked for
            begin += len(part)
    return b"".join(parts)


def open_rows(path: Path) -> BinaryIO:
    """A file to be read from its beginning, unpacked where it is compressed. Raises OSError as ``read_bytes``."""
    return unpacked(path).open("rb")


def forget(path: Path) -> None:
    """Open the file anew at the next read: what is known of its rows is of the file that is there now."""
    with _lock:
        descriptor = _open.pop(_key(path), None)
        if descriptor is not None:
            os.close(descriptor)


def forget_all() -> None:
    """Close what is open: after a look at some rows, so that processes that are forked get none of it."""
    with _lock:
        while _open:
            os.close(_open.popitem()[1])


def _key(path: Path) -> str:
    return str(path) if path.is_absolute() else os.path.abspath(path)


def _descriptor(key: str) -> int:
    descriptor = _open.pop(key, None)
    if descriptor is None:
        descriptor = os.open(unpacked(Path(key)), os.O_RDONLY | os.O_CLOEXEC)
    _open[key] = descriptor  # the one used last at the end
    if len(_open) > MOST_OPEN:
        os.close(_open.pop(next(iter(_open))))
    return descriptor
