"""Files that are never half written, and files of other machines."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

SEEN_S = 60.0
"""Seconds in which a machine sees what another has written: so long NFS may keep that a file is not there."""
LOOK_S = 0.1


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """A new file in the place of ``file``, once the block is left: whoever reads it, now or after a crash, sees the old
    or the new whole.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    aside = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")  # other hosts have such processes too
    try:
        with aside.open("wb") as written:
            yield written
            written.flush()
            os.fsync(written.fileno())
        aside.replace(file)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def replace_text(file: Path, text: str) -> None:
    """Put ``text`` in the place of ``file``; see ``replacing``."""
    with replacing(file) as written:
        written.write(text.encode("utf-8"))


def open_own(file: Path, *, errors: str = "strict") -> TextIO:
    """A file to be read and added to, which is made where there is none. What a link leads to is left alone.

    Raises:
        OSError: it cannot be written, is a link or no plain file.
    """
    return open(file, "a+", encoding="utf-8", errors=errors, opener=_own)


def _own(path: str, flags: int) -> int:
    try:  # without waiting for a reader, where somebody put a pipe
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if not os.path.islink(path):
            raise
        raise OSError(errno.ELOOP, "is a link; remove it, or put a file in its place", path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EPERM, "is no plain file", path)
    return descriptor


def is_seen(file: Path, seconds: float) -> bool:
    """Whether a file of another machine is there, or comes within so many seconds."""
    end = time.monotonic() + seconds
    while not file.exists():
        if time.monotonic() > end:
            return False
        time.sleep(LOOK_S)
    return True
