"""Ranks that have ended and that torchrun's agent does not see, since it waits for a node that no longer answers.

The agent asks a store for the other nodes between two looks at its ranks, and some of these calls have no time limit
(seen with torch 2.11): where the node that serves the store is frozen or cut off, the agent of every other node stands
still though its ranks have ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from kosmos.errors import TrainingError
from kosmos.runtime.launch import exit_status
from kosmos.runtime.processes import children

LOOKS_S = 2.0
"""Seconds between two looks."""
LEFT_S = 60.0
"""Seconds in which the agent asks how a rank ended, at most: it gives ranks 30 to end after a signal, one by one."""


def end_where_unseen() -> None:
    """Have this process, torchrun's agent, end with the status of its ranks once it has left one unseen for long."""
    if hasattr(os, "waitid"):
        threading.Thread(target=_look, name="unseen", daemon=True).start()


def _look() -> None:
    ranks: set[int] = set()
    since: dict[int, float] = {}
    while True:
        time.sleep(LOOKS_S)
        ranks |= set(children(os.getpid()))
        ended = {rank: status for rank in ranks if (status := _status(rank)) is not None}
        since = {rank: since.get(rank, time.monotonic()) for rank in ended}
        if since and time.monotonic() - min(since.values()) > LEFT_S:
            break
    line = (
        "the launcher of this node waits for a node that does not answer, and its ranks have ended; it ends too, and "
        "those of its ranks that still run end with it"
    )
    print(TrainingError(line).line(), file=sys.stderr, flush=True)
    os._exit(exit_status(status for status in ended.values() if status) if any(ended.values()) else 1)


def _status(rank: int) -> int | None:
    """How a process ended, a signal as a negative number, without a word to it; None where it runs, or somebody knows
    how it ended."""
    try:
        found = os.waitid(os.P_PID, rank, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -signal.Signals(found.si_status)
