"""The end of a process whose exchanges with other ranks have broken. No torch here."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress

_broken = False


def exchanges_broke() -> None:
    """From now on this process ends without freeing what exchanges tensors.

    NCCL waits, as a group of it is destroyed and where the process ends with one, for ranks that are gone: without end,
    as seen with torch 2.11 and NCCL 2.28. A program that is not the ``kosmos`` command ends with status 1, whatever it
    wants to end with: a function that runs at the end of the interpreter is not told.
    """
    global _broken
    if not _broken:
        atexit.register(end_if_broken, 1)
    _broken = True


def end_if_broken(status: int) -> None:
    """End the process at once with this status, if its exchanges broke."""
    if not _broken:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a pipe that nobody reads any more
            stream.flush()
    os._exit(status)
