"""How a run ended: noted as each launch ends, and told from the files of the run. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kosmos.errors import Interrupted, KosmosError, cause
from kosmos.train.goodput import Goodput
from kosmos.train.goodput_report import read_rows
from kosmos.train.holding import Lock

DONE, EARLY, TIME, STOPPED, FAILED = "done", "stopped early", "out of time", "stopped", "failed"
RUNNING, UNKNOWN = "running", "unknown"


def noting_end(clock: Goodput, why: Callable[[], tuple[bool, bool]]) -> Callable[..., None]:
    """What closes the clock of a launch as a block ends, with how that was.

    Args:
        why: whether the run, of which nothing failed, was stopped early, and whether its time is over.
    """

    def note(kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Interrupted | KeyboardInterrupt):
            clock.close(ended=STOPPED)
        elif error is not None:
            clock.close(ended=FAILED, problem=str(error) if isinstance(error, KosmosError) else cause(error))
        else:
            early, is_over = why()
            clock.close(ended=EARLY if early else TIME if is_over else DONE)

    return note


def how_ended(folder: Path, goodput: Path, last: int, steps: int | None) -> dict[str, Any]:
    """How the last launch of the run in ``folder`` ended, and what it failed of.

    ``unknown`` where it was killed, or runs on a machine whose locks are not seen here.

    Args:
        last: the last step that was taken, of so many as its run file says; a run of a version that did not note it is
            done behind it. One that was stopped before stays so where it is asked for fewer than it took: that only
            scores.
    """
    if Lock(folder).is_held():
        return {"how": RUNNING, "problem": None}
    rows = read_rows(goodput) if goodput.exists() else []
    found = rows[-1].ended if rows else None
    if found is None:
        found = DONE if steps is not None and last >= steps else UNKNOWN
    elif found == DONE and steps is not None and 0 < last < steps:
        found = STOPPED
    return {"how": found, "problem": rows[-1].problem_of_end if rows else None}
