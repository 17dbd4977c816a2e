"""Reads of the files that hold rows. They stay open between two rows: to open one takes as long as to parse a row."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock

MOST_OPEN = 32
"""Files that a process keeps open, those read last."""

_open: dict[Path, int] = {}
_lock = Lock()


def read_bytes(path: Path, begin: int, end: int) -> bytes:
    """Bytes ``begin`` to ``end`` of a file; fewer where it ends.

    Raises:
        OSError: it cannot be opened or read.
    """
    with _lock:
        return os.pread(_descriptor(path), end - begin, begin)


def _descriptor(path: Path) -> int:
    descriptor = _open.pop(path, None)
    if descriptor is None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    _open[path] = descriptor  # the one used last at the end
    if len(_open) > MOST_OPEN:
        os.close(_open.pop(next(iter(_open))))
    return descriptor
