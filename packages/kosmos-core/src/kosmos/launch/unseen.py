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
"""Seconds in which the agent asks how its ranks ended, at most: it gives them 30 to end after a signal, one by one."""


def end_where_unseen() -> None:
    """Have this process, torchrun's agent, end with the status of its ranks once all have ended and it does not see it
    for long."""
    if hasattr(os, "waitid"):
        threading.Thread(target=_look, name="unseen", daemon=True).start()


def _look() -> None:
    ranks: set[int] = set()
    looks = 0
    while looks * LOOKS_S <= LEFT_S:
        time.sleep(LOOKS_S)
        run = set(children(os.getpid()))
        ranks |= {child for child in run if _is_rank(child)}
        ended = {rank: status for rank in ranks if (status := _status(rank)) is not None}
        looks = looks + 1 if ended and run.isdisjoint(ranks) else 0  # counted: a machine may have slept meanwhile
    line = (
        "the launcher of this node waits for a node that does not answer, and its ranks have ended; it ends with their "
        "status"
    )
    print(TrainingError(line).line(), file=sys.stderr, flush=True)
    os._exit(exit_status(status for status in ended.values() if status) if any(ended.values()) else 1)


def _is_rank(child: int) -> bool:
    """Whether torchrun has started a child, in a session of its own. In a container it may have been given others,
    whom nobody asks how they ended: it is the first process there."""
    try:
        return os.getsid(child) == child
    except OSError:  # it has just ended
        return False


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
