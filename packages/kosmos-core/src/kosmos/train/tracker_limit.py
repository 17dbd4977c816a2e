"""A limit of time for one call of a tracker or an observer, which the next step waits for.

Its calls stay in the thread of the run, in their order: connections and what is kept by thread belong to that. A signal
gets it out of whatever it waits for; a C function that does not return is left to ``kosmos.train.watch``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

SHARE = 0.5
"""Of ``train.hang_s``, after which the run itself would end."""
AGAIN_S = 1.0
"""After which it is told once more, should it have caught what ends its call."""
MOST_S = 1e8
"""Of a timer; systems refuse much longer ones."""


class StandsStill(BaseException):
    """The limit has passed. No ``Exception``, so that what is tried again and again ends too."""


def bounded(act: Callable[[], None], seconds: float) -> None:
    """Do it, for so long at most. Without a limit outside of the main thread, which alone gets signals, and where a
    timer of somebody else is running.

    Raises:
        StandsStill: it took longer.
    """
    if threading.current_thread() is not threading.main_thread() or not _is_free():
        act()
        return
    is_done = False

    def stop(number: int, frame: FrameType | None) -> None:
        if not is_done:
            raise StandsStill(f"it stood still for {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, min(seconds, MOST_S), AGAIN_S)
            act()
        finally:
            is_done = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _is_free() -> bool:
    """Whether there are timers, which Windows has not, and this one is nobody's: a handler that is none of Python's
    could not be put back."""
    has_timer = hasattr(signal, "setitimer")
    return has_timer and not signal.getitimer(signal.ITIMER_REAL)[0] and signal.getsignal(signal.SIGALRM) is not None
