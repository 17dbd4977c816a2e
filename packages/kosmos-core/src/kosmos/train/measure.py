"""What says which scoring of a run is best: ``evaluate.best``. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kosmos.evaluate.score import Scores

LOSS, EXACT_MATCH = "loss", "exact_match"
LOWER = "lower_is_better"
"""In a scoring: the metrics of answers that were written of which lower is better."""
HOW = "generate"
"""In a scoring: how answers were written, as ``evaluate.generate`` says it."""
COUNT, CUT = "documents", "cut"
"""Of answers that were written: how many, and how many of them were cut off."""
ERRORS = ("exact_match_standard_error",)
NO_METRICS: Mapping[str, bool] = MappingProxyType({})


class Figure(NamedTuple):
    """What a scoring gives of a measure."""

    value: float
    compared: int
    """Documents that it is of, those that were cut as often as they have pieces: two of equally many compare."""


@dataclass(frozen=True)
class Measure:
    """A figure of held-out documents, as a word for a person: ``held-out loss of captions``."""

    source: str | None = None
    """Whose documents; None is all."""
    name: str = LOSS
    """``loss``, ``exact_match``, or a metric of the answers that are written for the documents."""
    lower: bool = True
    """Whether lower is better."""

    @classmethod
    def of(cls, stated: str | None, metrics: Mapping[str, bool] = NO_METRICS) -> Measure:
        """What ``evaluate.best`` states. Names of sources may have dots: only a measure behind the last one is split
        off.

        Args:
            metrics: of answers that are written, and whether lower is better.
        """
        if stated is None:
            return cls()
        source, dot, name = stated.rpartition(".")
        of_all = {LOSS: True, EXACT_MATCH: False}
        known = {**metrics, **of_all} if source else {} if dot else of_all
        return cls(source or None, name, known[name]) if name in known else cls(stated)

    @classmethod
    def told(cls, best: Mapping[str, Any]) -> Measure:
        """Of ``held_out_best`` of a report, which has a figure by its name."""
        name = next(key for key in best if key not in ("step", "source", LOWER))
        return cls(best.get("source"), name, best.get(LOWER, name == LOSS))

    @property
    def is_of_written(self) -> bool:
        """Whether it is a metric of answers that are written."""
        return self.name not in (LOSS, EXACT_MATCH)

    def __str__(self) -> str:
        of = "" if self.source is None else f" of {self.source}"
        return f"held-out {self.name.replace('_', ' ')}{of}"

    @property
    def best(self) -> str:
        """What a person calls the best of it: ``lowest held-out loss``."""
        return f"{self.extreme} {self}"

    @property
    def extreme(self) -> str:
        return "lowest" if self.lower else "highest"

    @property
    def better(self) -> str:
        return "lower" if self.lower else "higher"

    def shown(self, value: float) -> str:
        if self.is_of_written:
            return f"{value:.4g}"
        return f"{value:.4f}" if self.name == LOSS else f"{100 * value:.2f} %"

    def cost(self, value: float) -> float:
        """Lower is better."""
        return value if self.lower else -value

    def figure(self, told: Mapping[str, Any]) -> Figure | None:
        """Of ``held_out`` of a row of ``held_out.jsonl``; None where there is none, or none that is finite."""
        if self.is_of_written:
            part = (told.get("generated") or {}).get(self.source)
        else:
            part = told.get("overall") if self.source is None else (told.get("source") or {}).get(self.source)
        value = part.get(self.name) if part and part.get(COUNT) else None
        if part is None or value is None or not math.isfinite(value):
            return None
        return Figure(value, part.get("pieces") or part[COUNT])

    def of_scores(self, scores: Scores) -> Figure | None:
        """Likewise, which may be a loss that is not finite."""
        if self.is_of_written:
            written = scores.generated.get(self.source or "", {})
            return Figure(written[self.name], int(written[COUNT])) if self.name in written else None
        score = scores.overall if self.source is None else scores.by_source.get(self.source)
        value = getattr(score, self.name) if score is not None and score.documents else None
        return None if score is None or value is None else Figure(value, score.compared)


ALL = Measure()
"""The loss of all documents."""


def measured(rows: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """The metrics of answers that were written, and whether lower is better.

    Args:
        rows: of ``held_out.jsonl``.
    """
    found: dict[str, bool] = {}
    for row in rows:
        told = row.get("held_out") or {}
        lower = told.get(LOWER) or ()
        names = {name for part in (told.get("generated") or {}).values() for name in part}
        found |= {name: name in lower for name in names - {COUNT, CUT, *ERRORS}}
    return found
