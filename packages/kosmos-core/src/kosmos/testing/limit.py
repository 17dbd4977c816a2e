"""A limit of time for what a plugin does in this process: it is stopped where it stands, and that place is told."""

from __future__ import annotations

import faulthandler
import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 5.0
"""After which it is stopped once more, should it have caught what stops it."""
GRACE_S = 30.0
"""After which the process ends with the stacks of its threads: nothing stops a C function but its own end."""


class LimitPassed(BaseException):
    """The limit has passed; the text says where the code stood. No ``Exception``, so that no plugin handles it."""


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Run what is inside for so long at most. Without a limit outside of the main thread, which alone gets signals.

    Raises:
        LimitPassed: it took longer.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise LimitPassed(f"took more than {seconds:g} s, and was stopped at {_place(frame)}")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    if sys.__stderr__ is not None:
        faulthandler.dump_traceback_later(seconds + GRACE_S, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def _place(frame: FrameType | None) -> str:
    """The innermost line that is not of Python's library, of PyTorch or of this kit; else the innermost."""
    frames = traceback.extract_stack(frame)
    others = (sysconfig.get_path("stdlib"), "<frozen")
    known = ("-packages/torch/", "-packages/hypothesis/", "/kosmos/testing/", "/kosmos/commands/", "/kosmos/cli.py")
    own = [f for f in frames if not f.filename.startswith(others) or "-packages/" in f.filename]
    own = [f for f in own if not any(part in f.filename for part in known)]
    last = next(reversed(own), frames[-1])
    return f"{last.filename}:{last.lineno} in {last.name}"
