"""The end of a process whose exchanges with other ranks have broken. No torch here."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from contextlib import suppress

from kosmos.errors import TrainingError

_broken = False


def exchanges_broke() -> None:
    """From now on this process ends without freeing what exchanges tensors.

    NCCL waits, as a group of it is destroyed and where the process ends with one, for ranks that are gone: without end,
    as seen with torch 2.11 and NCCL 2.28. A program that is not the ``kosmos`` command says so and ends with status 1,
    whatever it wants to end with: a function that runs at the end of the interpreter is not told.
    """
    global _broken
    _broken = True


def check_exchanges() -> None:
    """Raises TrainingError where they broke: nothing can be trained with the other ranks any more."""
    if _broken:
        raise TrainingError("a run of this process has failed, and other ranks may be gone; start all processes anew")


def end_if_broken(status: int) -> None:
    """End the process at once with this status, if its exchanges broke."""
    if not _broken:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a pipe that nobody reads any more
            stream.flush()
    logging.shutdown()
    os._exit(status)


@atexit.register  # what a program registers later runs before
def _end_program() -> None:
    if _broken:
        print("kosmos: a run failed and NCCL would wait for other ranks: this process ends with 1", file=sys.stderr)
    end_if_broken(1)
