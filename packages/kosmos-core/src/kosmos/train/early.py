"""Early stopping on the held-out loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kosmos.config import EvaluateConfig
from kosmos.evaluate.score import Score, Scores


class EarlyStopping:
    """Counts scorings since the held-out loss was last lower than ever, of so many documents as are scored now."""

    def __init__(self, config: EvaluateConfig) -> None:
        self.patience, self.least_gain = config.patience, config.least_gain
        self.best = math.inf
        self.best_step = 0
        self.since = 0
        self.documents: int | None = None
        """Of the last scoring; None where there was none, or an old checkpoint does not tell."""
        self.looked: int | None = 0
        """Step of the last scoring; None where an old checkpoint does not tell."""

    def look(self, score: Score, step: int) -> None:
        """Note a scoring of all documents. Of none it says nothing; a loss that is not finite is no lower one."""
        self.looked = step
        if not score.documents:
            return
        if self.documents not in (None, score.documents):  # others were scored, which compare with none of these
            self.best, self.best_step, self.since = math.inf, 0, 0
        self.documents = score.documents
        if score.loss < self.best - self.least_gain:
            self.best, self.best_step, self.since = score.loss, step, 0
        else:
            self.since += 1

    @property
    def wanted(self) -> bool:
        return self.patience is not None and self.since >= self.patience

    def told(self, before: Scores | None) -> str:
        """Why it is wanted, for a person.

        Args:
            before: scores before the first step, which do not count: a run may have to get worse first.
        """
        score = before.overall if before else None
        lower = score is not None and score.documents == self.documents and score.loss < self.best
        return str(self) + (f"; before the first step it was lower ({score.loss:.4f})" if score and lower else "")

    def __str__(self) -> str:
        ago = f"{self.since} scoring{'s' * (self.since != 1)} ago"
        if not self.least_gain:
            return f"the held-out loss was lowest at step {self.best_step} ({self.best:.4f}), {ago}"
        # It may have become lower since, by less.
        least = f"evaluate.least_gain {self.least_gain:g}"
        return f"the held-out loss was {self.best:.4f} at step {self.best_step}, {ago}, and none since lower by {least}"

    def state(self) -> dict[str, Any]:
        best = self.best if self.best_step else None
        counts = {"best_step": self.best_step, "since": self.since, "looked": self.looked}
        return {"best": best, **counts, "documents": self.documents}

    def load(self, state: Mapping[str, Any]) -> None:
        self.best = math.inf if state["best"] is None else state["best"]
        self.best_step, self.since, self.looked = state["best_step"], state["since"], state.get("looked")
        self.documents = state.get("documents")
