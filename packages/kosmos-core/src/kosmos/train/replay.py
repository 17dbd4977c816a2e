"""Which documents some steps of a run took: its lanes are filled once more, by headers alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kosmos.checkpoint.folder import committed, step_of
from kosmos.data.document import Source
from kosmos.data.feeder import as_known
from kosmos.data.fingerprint import fingerprint_of
from kosmos.data.lane import Feed, Lane
from kosmos.data.ledger_codes import MEDIUM
from kosmos.train.forecast.rows import next_row
from kosmos.train.json_lines import step_row
from kosmos.train.newest_state import newest_state, state_of
from kosmos.train.older_rules import as_begun
from kosmos.train.output import RunFolder

MOST_IN_TURN = 64
"""Rows of bad documents alone that are passed over: what was bad once, as when a disk hung, need not stay so."""


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
    """Where it is not what the step took, by what is known of the run: why not."""


def steps_taken(
    folder: RunFolder,
    feed: Feed,
    first: int,
    last: int,
    *,
    moved: Callable[[int, int], None] = lambda count, total: None,
) -> Iterator[TakenStep]:
    """What the steps from ``first`` to ``last`` took, beginning at the newest checkpoint before them.

    Args:
        feed: of the run's data as they are now; where they are others than they were, ``TakenStep.other`` says so.
        moved: told of each step that was filled once more, also before ``first``: 1, and how many there are in all.
    """
    bad = {row["origin"] for row in _rows(folder.quarantine) if row.get("code") != MEDIUM}
    told = _metrics(folder, first, last)
    others = ""
    if (state := newest_state(folder.checkpoints)) is not None:
        as_begun(state["order"], feed.mixture.sources)
        others = _others(state, feed.mixture.sources)
    begun, lanes = _begin(folder, feed, first)
    for step in range(begun + 1, last + 1):
        found = [document for lane in lanes for document in _row(lane, bad)]
        moved(1, last - begun)
        if step >= first:
            yield TakenStep(step, found, others or _difference(found, told.get(step)))


def _row(lane: Lane, bad: Collection[str]) -> Iterator[Taken]:
    """What the next row of a lane takes. One of which nothing can be decoded is none: the next is in its place."""
    for _ in range(MOST_IN_TURN):
        documents = next_row(lane).arrays.documents
        for document, after in zip(documents, (*documents[1:], None), strict=True):
            if not document.is_rejected:  # a pair is one document
                tokens = document.length + (after.length if after is not None and after.is_rejected else 0)
                yield Taken(lane.number, document.source, document.origin, tokens, document.origin in bad)
        if any(document.origin not in bad for document in documents):
            return


def last_step(folder: RunFolder) -> int:
    """The last step in the run's metrics; 0 where there is none."""
    return max((int(row["step"]) for row in _rows(folder.metrics)), default=0)


def _begin(folder: RunFolder, feed: Feed, first: int) -> tuple[int, list[Lane]]:
    """A step before ``first``, and the lanes as they were behind it."""
    numbers = range(feed.mixture.num_lanes)
    for checkpoint in (found for found in committed(folder.checkpoints) if step_of(found) < first):
        if (state := state_of(checkpoint)) is None:
            continue
        data = state["data"]
        lanes = [Lane(as_known(feed, data), number) for number in numbers]
        for lane in lanes:
            lane.load(data["lanes"][str(lane.number)])
        return step_of(checkpoint), lanes
    lanes = [Lane(feed, number) for number in numbers]
    if state := newest_state(folder.checkpoints):
        for lane in lanes:  # those of older versions had a rule of their own
            lane.cursor.looks = state["data"]["lanes"][str(lane.number)].get("looks", False)
    return 0, lanes


def _others(state: Mapping[str, Any], sources: Sequence[Source]) -> str:
    """In words, whether the documents are others than those of a checkpoint, where that is known."""
    before = {source["name"]: source.get("fingerprint") for source in state["order"]["data"]["sources"]}
    for source in sources:
        known, now = before.get(source.name), fingerprint_of(source)
        if None not in (known, now) and known != now:
            return f"the documents of {source.name} are others than they were, or in another order"
    return ""


def _difference(found: list[Taken], told: tuple[Any, Any] | None) -> str:
    if told is None:
        return "the run has no metrics of this step"
    whole = [document.tokens for document in found if not document.is_bad]
    if told == (here := (len(whole), sum(whole))):
        return ""
    return (
        f"by its metrics it took {told[0]} documents of {told[1]} tokens, and here are {here[0]} of {here[1]}: the "
        "data are others than they were, or the run went back to a checkpoint in between"
    )


def _metrics(folder: RunFolder, first: int, last: int) -> dict[int, tuple[Any, Any]]:
    """Documents and tokens by step."""
    rows = (row for row in _rows(folder.metrics) if first <= row["step"] <= last)
    return {row["step"]: (row.get("documents"), row.get("tokens")) for row in rows}


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    if file.exists():
        with file.open(encoding="utf-8", errors="replace") as lines:
            yield from filter(None, map(step_row, lines))
