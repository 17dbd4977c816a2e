"""Which documents some steps of a run took: its lanes are filled once more, by headers alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kosmos.checkpoint.folder import committed, load_step, step_of
from kosmos.data.feeder import as_known
from kosmos.data.lane import Feed, Lane
from kosmos.errors import CheckpointError
from kosmos.train.forecast.rows import next_row
from kosmos.train.json_lines import step_row
from kosmos.train.output import RunFolder


@dataclass(frozen=True)
class Taken:
    """A document in a row, or a piece of one that is longer than rows."""

    lane: int
    source: str
    origin: str
    tokens: int
    is_bad: bool
    """It could not be decoded, and was left out of the row."""


@dataclass(frozen=True)
class TakenStep:
    """What a step took."""

    step: int
    documents: list[Taken]
    other: str = ""
    """Where it is not what the run's metrics tell of the step: how."""


def steps_taken(folder: RunFolder, feed: Feed, first: int, last: int) -> Iterator[TakenStep]:
    """What the steps from ``first`` to ``last`` took, beginning at the newest checkpoint before them.

    Args:
        feed: of the run's data as they are now; where they are others than they were, ``TakenStep.other`` says so.
    """
    begun, lanes = _begin(folder, feed, first)
    bad, told = {row["origin"] for row in _rows(folder.quarantine)}, _metrics(folder, first, last)
    for step in range(begun + 1, last + 1):
        rows = [next_row(lane) for lane in lanes]
        if step < first:
            continue
        found = [
            Taken(row.lane, document.source, document.origin, document.length, document.origin in bad)
            for row in rows
            for document in row.arrays.documents
        ]
        yield TakenStep(step, found, _difference(found, told.get(step)))


def last_step(folder: RunFolder) -> int:
    """The last step in the run's metrics; 0 where there is none."""
    return max((int(row["step"]) for row in _rows(folder.metrics)), default=0)


def _begin(folder: RunFolder, feed: Feed, first: int) -> tuple[int, list[Lane]]:
    """A step before ``first``, and the lanes as they were behind it."""
    numbers = range(feed.mixture.num_lanes)
    for step in (step for step in map(step_of, committed(folder.checkpoints)) if step < first):
        try:
            data = load_step(folder.checkpoints, step).state["data"]
        except CheckpointError:  # damaged: an older one will do
            continue
        lanes = [Lane(as_known(feed, data), number) for number in numbers]
        for lane in lanes:
            lane.load(data["lanes"][str(lane.number)])
        return step, lanes
    return 0, [Lane(feed, number) for number in numbers]


def _difference(found: list[Taken], told: dict[str, Any] | None) -> str:
    if told is None:
        return "the run has no metrics of this step"
    whole = [document for document in found if not document.is_bad]
    here = {"documents": len(whole), "tokens": sum(document.tokens for document in whole)}
    if all(told.get(name) == count for name, count in here.items()):
        return ""
    return (
        f"by its metrics it took {told.get('documents')} documents of {told.get('tokens')} tokens, and here are "
        f"{here['documents']} of {here['tokens']}: the data are others than they were, or the run went back to a "
        "checkpoint in between"
    )


def _metrics(folder: RunFolder, first: int, last: int) -> dict[int, dict[str, Any]]:
    return {row["step"]: row for row in _rows(folder.metrics) if first <= row.get("step", 0) <= last}


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    if file.exists():
        with file.open(encoding="utf-8", errors="replace") as lines:
            yield from filter(None, map(step_row, lines))
