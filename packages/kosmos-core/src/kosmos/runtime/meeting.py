"""The wait for the other processes of a run, which is told of and ends in one line."""

from __future__ import annotations

import signal
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

    Until they have met, Ctrl-C and SIGTERM end the process as they end one without handlers: while torch waits no
    handler of Python's is heard.

    Raises:
        TrainingError: they have not met.
    """
    line = f"rank {rank}: waiting for {world_size} processes to meet at {place}"
    timer = threading.Timer(told_after_s, lambda: print(line, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        with _ended_by_signals():
            yield
    except RuntimeError as error:  # of torch's store where some do not come, or of gloo where one cannot be reached
        line = f"rank {rank}: {world_size} processes could not be connected at {place} ({cause(error)})"
        raise TrainingError(line) from error
    finally:
        timer.cancel()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    taken = {number: handler for number, handler in old.items() if callable(handler)}
    for number in taken:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
