"""The first rows of a run, filled as data workers fill them, by headers alone; and how often its data come."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kosmos.data.lane import Empty, Feed, Lane, Row
from kosmos.data.quarantine import Budget, Incident
from kosmos.errors import QuarantineFull
from kosmos.train.balance import balance_of, cells_of
from kosmos.train.source_tokens import SourceTokens

STEPS, SECONDS = 8, 10.0
"""How many steps are planned, and how long that may take; one row is planned however long it takes."""


@dataclass(frozen=True)
class PlannedRows:
    """Rows of the first steps, in the order of steps and lanes."""

    rows: list[Row]
    lanes: int
    """Rows of a step."""
    tokens_per_pack: int
    incidents: list[Incident] = field(default_factory=list)
    """What could not be planned, as often as it was drawn."""
    drawn: list[int] = field(default_factory=list)
    """Documents drawn for each row."""

    def doubt(self, quarantine: float) -> str | None:
        """What to say where training would stop for its bad samples; None where it would not.

        Args:
            quarantine: ``data.quarantine``.
        """
        try:
            useful = {document.source for row in self.rows for document in row.arrays.documents}
            Budget(quarantine).add(sum(self.drawn), self.incidents, useful)
        except QuarantineFull as error:
            return f"training would stop: {error}"
        return None

    @property
    def steps(self) -> int:
        """Those of which every row is planned."""
        return len(self.rows) // self.lanes

    @property
    def tokens(self) -> float:
        """Of a row, on average."""
        return sum(len(row.arrays.token_ids) for row in self.rows) / len(self.rows)

    def figures(self) -> dict[str, Any]:
        """What a person asks of them."""
        every = [len(row.arrays.token_ids) for row in self.rows]
        media = [sum(len(m.slots) for m in row.arrays.media.values()) for row in self.rows]
        cells = [cells_of(row) for row in self.rows]
        by_source = Counter[str]()
        for row in self.rows:
            by_source.update({d.source: 0 for d in row.arrays.documents})
            for document in row.arrays.documents:
                by_source[document.source] += document.length
        count = len(self.rows)
        return {
            "rows": count,
            "steps": self.steps,
            "fill": sum(every) / (count * self.tokens_per_pack),
            "tokens_per_row": sum(every) / count,
            "text_tokens_per_row": (sum(every) - sum(media)) / count,
            "media_tokens_per_row": sum(media) / count,
            "documents_per_row": sum(not d.is_rejected for row in self.rows for d in row.arrays.documents) / count,
            "cells_by_stream": {
                name: {"mean": sum(row[name] for row in cells) / count, "most": max(row[name] for row in cells)}
                for name in cells[0]
            },
            "imbalance_by_stream": self._imbalance(),
            "tokens_by_source": dict(sorted(by_source.items())),
            "incidents": len({incident.origin for incident in self.incidents}),
        }

    def _imbalance(self) -> dict[str, float]:
        """As rows of metrics tell it, on average over the steps that hold cells of a stream."""
        steps = [self.rows[at * self.lanes : (at + 1) * self.lanes] for at in range(self.steps)]
        found: dict[str, list[float]] = {}
        for rows in steps:
            for name, value in balance_of([cells_of(row) for row in rows])["imbalance_by_stream"].items():
                found.setdefault(name, []).append(value)
        return {name: sum(values) / len(values) for name, values in found.items()}


def plan_rows(
    feed: Feed, *, lanes: int, steps: int = STEPS, seconds: float = SECONDS, moved: Callable[[], None] = lambda: None
) -> PlannedRows:
    """The rows of the first ``steps``, or as many of them as ``seconds`` allow, but one at least.

    Args:
        moved: called after each row.

    Raises:
        DataError: sample after sample is unusable.
    """
    every = [Lane(feed, number) for number in range(lanes)]
    planned = PlannedRows([], lanes, feed.planner.max_tokens)
    end = time.monotonic() + seconds
    for _ in range(steps):
        for lane in every:
            if planned.rows and time.monotonic() > end:
                return planned
            planned.rows.append(next_row(lane, planned))
            moved()
    return planned


def next_row(lane: Lane, planned: PlannedRows | None = None) -> Row:
    """By headers alone. ``planned`` is told what could not be used, and how many documents were drawn."""
    while True:
        turn = lane.outline()
        assert turn is not None, "a mixture for training has no end"
        if planned is not None:
            planned.incidents.extend(turn.incidents)
            planned.drawn.append(turn.drawn)
        if not isinstance(turn, Empty):
            return turn


@dataclass(frozen=True)
class Passes:
    """How a source comes in a run."""

    name: str
    documents: int
    share: float | None
    """Of the tokens that are trained on; None where none of its first documents can be used."""
    tokens: float | None
    """Of all its documents that can be used."""
    tokens_error: float | None
    """Standard error of ``tokens``; 0 where all were looked at."""
    passes: float | None
    """How often each document comes, on average over the run."""


def passes_of(feed: Feed, sizes: Sequence[SourceTokens], run_tokens: float) -> list[Passes]:
    """
    Args:
        sizes: of each source.
        run_tokens: that all steps take together.
    """
    mixture = feed.mixture
    stated = [of.total for of in sizes] if mixture.by_documents else list(mixture.weights)
    shares = _shares([weight if of.total else None for weight, of in zip(stated, sizes, strict=True)])
    return [
        Passes(source.name, len(source), share, of.total, of.error, run_tokens * share / of.total)
        if share and of.total
        else Passes(source.name, len(source), share, None, None, None)
        for source, share, of in zip(mixture.sources, shares, sizes, strict=True)
    ]


def _shares(weights: Sequence[float | None]) -> list[float | None]:
    total = sum(weight or 0.0 for weight in weights)
    return [weight / total if weight and total else None for weight in weights]
