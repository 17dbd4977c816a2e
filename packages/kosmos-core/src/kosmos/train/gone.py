"""Whether a run that has no checkpoint once had one, and so must not begin again over its own history."""

from __future__ import annotations

from kosmos.checkpoint.folder import PARTIAL, committed
from kosmos.errors import CheckpointError
from kosmos.train.changes import changes_of
from kosmos.train.goodput_report import Row, launches_of, read_rows
from kosmos.train.json_lines import step_row, written_lines
from kosmos.train.output import RunFolder


def check_checkpoints(run: RunFolder) -> None:
    """Of a run that has none: see that none was lost, with a disk that is not mounted, say.

    The folder for them is made before the first step. Where it is there and empty, what the ledgers tell counts: a run
    that was stopped before its first checkpoint, or could write none, has lost nothing.

    Raises:
        CheckpointError: that folder or what it held is gone, and the steps with it.
    """
    if run.checkpoints.is_dir() and committed(run.checkpoints):
        return
    rows = map(step_row, written_lines(run.metrics))
    steps = max((row["step"] for row in rows if row is not None), default=0)
    if not steps:
        return
    if not run.checkpoints.is_dir():
        lost = f"is not there, and {run.metrics.name} tells of {steps} steps"
    elif (proof := _had_one(run, steps)) is not None:
        lost = f"holds no checkpoint, and {proof}"
    else:
        return
    raise CheckpointError(
        f"{run.checkpoints}: {lost}; bring it back or mount it, or begin anew with another --output (in this folder: "
        f"take {run.metrics.name} away)"
    )


def _had_one(run: RunFolder, steps: int) -> str | None:
    """What proves that a checkpoint was saved, in words."""
    if found := max((row["step"] - 1 for row in changes_of(run.changes)), default=0):
        return f"{run.changes.name} tells that the run went on from step {found}"
    last = _since_its_beginning(read_rows(run.goodput) if run.goodput.exists() else [])
    if newest := max((row.newest or row.first_step * (row is own[0]) for own in last for row in own), default=0):
        return f"{run.goodput.name} tells of one of step {newest}"
    if any(row.failed for own in last for row in own) or any(run.checkpoints.glob(f"{PARTIAL}*")):
        return None  # it could be written no more than later ones, or was not yet
    settings = run.read_config().get("checkpoint") or {}
    every, name = min(
        ((n, name) for name in ("every_steps", "keep_every") if (n := settings.get(name))), default=(0, "")
    )
    if not 0 < every < steps:
        return None
    return f"{run.metrics.name} tells of {steps} steps, with checkpoint.{name} {every}"


def _since_its_beginning(rows: list[Row]) -> list[list[Row]]:
    """By launch, from the last that began at step 0 on: what was before it was given up by then."""
    launches = launches_of(rows)
    begun = [number for number, own in enumerate(launches) if not own[0].first_step]
    return launches[begun[-1] if begun else 0 :]
