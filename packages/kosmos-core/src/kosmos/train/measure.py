"""What says which scoring of a run is best: ``evaluate.best``. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kosmos.evaluate.score import Score, Scores

LOSS, EXACT_MATCH = "loss", "exact_match"


@dataclass(frozen=True)
class Measure:
    """A figure of held-out documents, as a word for a person: ``held-out loss of captions``."""

    source: str | None = None
    """Whose documents; None is all."""
    name: str = LOSS
    """``loss``, of which lower is better, or ``exact_match``."""

    @classmethod
    def of(cls, stated: str | None) -> Measure:
        """What ``evaluate.best`` states. Names of sources may have dots: only a measure behind the last one is split
        off."""
        if stated is None:
            return cls()
        source, dot, name = stated.rpartition(".")
        if name not in (LOSS, EXACT_MATCH) or (dot and not source):
            return cls(stated)
        return cls(source or None, name)

    @classmethod
    def told(cls, best: Mapping[str, Any]) -> Measure:
        """Of ``held_out_best`` of a report, which has a figure by its name."""
        return cls(best.get("source"), LOSS if LOSS in best else EXACT_MATCH)

    def __str__(self) -> str:
        of = "" if self.source is None else f" of {self.source}"
        return f"held-out {self.name.replace('_', ' ')}{of}"

    @property
    def best(self) -> str:
        """What a person calls the best of it: ``lowest held-out loss``."""
        return f"{self.extreme} {self}"

    @property
    def extreme(self) -> str:
        return "lowest" if self.name == LOSS else "highest"

    @property
    def better(self) -> str:
        return "lower" if self.name == LOSS else "higher"

    def shown(self, value: float) -> str:
        return f"{value:.4f}" if self.name == LOSS else f"{100 * value:.2f} %"

    def cost(self, value: float) -> float:
        """Lower is better."""
        return value if self.name == LOSS else -value

    def part(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of ``held_out`` of a row of ``held_out.jsonl``; empty where nothing of it was scored."""
        part = told.get("overall") if self.source is None else (told.get("source") or {}).get(self.source)
        return part or {}

    def value(self, told: Mapping[str, Any]) -> float | None:
        """As ``part``: the figure. None where there is none, or none that is finite."""
        part = self.part(told)
        value: float | None = part.get(self.name) if part.get("documents") else None
        return value if value is not None and math.isfinite(value) else None

    def score(self, scores: Scores) -> Score | None:
        """That of the documents, where any has the figure."""
        found = scores.overall if self.source is None else scores.by_source.get(self.source)
        return found if found is not None and found.documents and getattr(found, self.name) is not None else None


ALL = Measure()
"""The loss of all documents."""
