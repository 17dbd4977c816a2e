"""Memory that processes share by a file descriptor, and that nobody finds by a name."""

from __future__ import annotations

import os
import tempfile

ALIGNMENT = 64


def open_memory(name: str, nbytes: int) -> int:
    """A file descriptor of zeros. What is never written to takes no memory.

    Args:
        name: what the system's own lists call it.

    Raises:
        OSError: the system gives none.
    """
    try:
        fd = os.memfd_create(name)
    except (AttributeError, OSError):  # another system, or one that forbids it
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.truncate(fd, nbytes)
    except OSError:
        os.close(fd)
        raise
    return fd


def aligned(place: int) -> int:
    """The next place at which an array of any type may begin."""
    return -(-place // ALIGNMENT) * ALIGNMENT
