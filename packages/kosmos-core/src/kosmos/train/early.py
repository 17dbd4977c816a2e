"""Early stopping on held-out scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from kosmos.config import EvaluateConfig
from kosmos.evaluate.score import Scores
from kosmos.train.measure import NO_METRICS, Measure


class EarlyStopping:
    """Counts scorings since the best one by ``evaluate.best``, of so many documents as are scored now."""

    def __init__(self, config: EvaluateConfig, metrics: Mapping[str, bool] = NO_METRICS) -> None:
        """
        Args:
            metrics: of answers that are written, as of ``Measure.of``.
        """
        self.patience, self.least_gain, self._metrics = config.patience, config.least_gain, metrics
        self.stated, self.measure = config.best, Measure.of(config.best, metrics)
        written = config.generate.how if config.generate else None
        self.written = written if self.measure.is_of_written else None
        """How the answers are written that it counts by, where it does."""
        self.looked: int | None = 0
        """Step of the last scoring; None where an old checkpoint does not tell."""
        self.from_first = True
        """Whether the scoring before the first step counts; not in a run that an older version has begun."""
        self._begin()

    def _begin(self) -> None:
        """Nothing was scored yet."""
        self.best: float | None = None
        """None where no scoring gave a finite figure."""
        self.best_step = 0
        self.since = 0
        self.documents: int | None = None
        """Of the last scoring; None where there was none, or an old checkpoint does not tell."""

    def look(self, scores: Scores, step: int) -> None:
        """Note a scoring. Where it measured nothing it says nothing; a loss that is not finite is no lower one.

        Args:
            step: 0 of the scoring before the first step, which is what others have to be better than.
        """
        self.looked = step
        figure = self.measure.of_scores(scores)
        if figure is None or (not step and not math.isfinite(figure.value)):
            return
        if self.documents not in (None, figure.compared):  # others were scored, which compare with none of these
            self._begin()
        self.documents = figure.compared
        if self._is_better(figure.value, self.least_gain):
            self.best, self.best_step, self.since = figure.value, step, 0
        else:
            self.since += 1

    def _is_better(self, value: float, by: float = 0.0) -> bool:
        return self.measure.cost(value) < (math.inf if self.best is None else self.measure.cost(self.best)) - by

    @property
    def wanted(self) -> bool:
        return self.patience is not None and self.since >= self.patience

    def told(self, before: Scores | None) -> str:
        """Why it is wanted, for a person.

        Args:
            before: scores before the first step, which count for nothing where not ``from_first``.
        """
        figure = self.measure.of_scores(before) if before else None
        if figure is None or figure.compared != self.documents or not self._is_better(figure.value):
            return str(self)
        value = self.measure.shown(figure.value)
        return f"{self}; before the first step it was {self.measure.better} ({value})"

    def __str__(self) -> str:
        ago = f"{self.since} scoring{'s' * (self.since != 1)} ago"
        what, value = self.measure, self.measure.shown(math.inf if self.best is None else self.best)
        when = f"at step {self.best_step}" if self.best_step or self.best is None else "before the first step"
        if not self.least_gain:
            return f"the {what} was {what.extreme} {when} ({value}), {ago}"
        # It may have become better since, by less.
        least = f"evaluate.least_gain {self.least_gain:g}"
        return f"the {what} was {value} {when}, {ago}, and none since {what.better} by {least}"

    def state(self) -> dict[str, Any]:
        counts = {"best_step": self.best_step, "since": self.since, "looked": self.looked}
        by = {"by": self.stated} if self.written is None else {"by": self.stated, "written": self.written}
        return {"best": self.best, **counts, "documents": self.documents, **by, "from_first": self.from_first}

    def load(self, state: Mapping[str, Any]) -> None:
        self.best = state["best"]
        self.best_step, self.since, self.looked = state["best_step"], state["since"], state.get("looked")
        self.documents, self.from_first = state.get("documents"), state.get("from_first", False)

    def counts_by(self, state: Mapping[str, Any]) -> bool:
        """Whether what ``state`` counted is what is to be counted; older ones counted by the loss of all documents."""
        return Measure.of(state.get("by"), self._metrics) == self.measure and state.get("written") == self.written

    def count_anew(self, scorings: Iterable[tuple[int, Scores]]) -> None:
        """Count what was scored up to now, by step, whose state ``load`` took from a run that counted otherwise."""
        looked = self.looked
        self._begin()
        for step, scores in scorings:
            self.look(scores, step)
        self.looked = looked
