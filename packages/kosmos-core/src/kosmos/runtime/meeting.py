"""The wait for the other processes of a run, which is told of and ends in one line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kosmos.errors import TrainingError, cause

TOLD_AFTER_S = 10.0
"""Ranks that a launcher starts have long met by then."""


@contextmanager
def meeting(rank: int, world_size: int, place: str, *, told_after_s: float = TOLD_AFTER_S) -> Iterator[None]:
    """Around what connects the processes with each other. torch gives up by itself, after 30 minutes (torch 2.11).

    Raises:
        TrainingError: they have not met.
    """
    line = f"rank {rank}: waiting for {world_size} processes to meet at {place}"
    timer = threading.Timer(told_after_s, lambda: print(line, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    except RuntimeError as error:  # of torch's store where some do not come, or of gloo where one cannot be reached
        line = f"rank {rank}: {world_size} processes could not be connected at {place} ({cause(error)})"
        raise TrainingError(line) from error
    finally:
        timer.cancel()
