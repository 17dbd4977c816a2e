"""What ``kosmos report`` says of where a run comes from. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kosmos.names import listed

if TYPE_CHECKING:
    from kosmos.train.output import RunFolder

UNTRAINED = AVERAGED, SAVED = "averaged", "saved"
"""How runs have ended that were never trained: the mean of checkpoints, and weights that were saved by themselves."""


def lineage_of(run: RunFolder) -> dict[str, Any]:
    """The runs that a run was begun with, the last of them first, and what it was made of, as plain values."""
    from kosmos.train.begun import AVERAGE, BRANCH, noted
    from kosmos.train.lineage import begun_with, lineage

    chain, told = lineage(*begun_with(run, run.read_config())), noted(run)
    return {
        "init": [{"path": str(one.path), "step": one.step} for one in chain.runs],
        "lost": chain.lost and str(chain.lost),
        "branch": told.get(BRANCH),
        "average": told.get(AVERAGE),
    }


def ended_untrained(run: RunFolder) -> dict[str, Any] | None:
    """How a run ended that holds weights and has taken no step; None of any other."""
    from kosmos.checkpoint import AVERAGED as STEPS
    from kosmos.train.lineage import Earlier

    state = Earlier(run, {}, None).state() or {}
    return {"how": AVERAGED if state[STEPS] else SAVED, "problem": None} if STEPS in state else None


def lineage_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The same for a person."""
    runs = [one["path"] + ("" if one["step"] is None else f" (step {one['step']:,})") for one in found["init"]]
    if lost := found["lost"]:
        runs.append(f"{lost} (gone)")
    if runs:
        yield f"init       {' < '.join(runs)}"
    if branch := found["branch"]:
        yield f"branch     of {branch.get('path')}, step {branch.get('step')}"
    if mean := found["average"]:
        yield f"average    of steps {listed(map(str, mean.get('steps', ())))} of {mean.get('path')}"
