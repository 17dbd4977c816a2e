"""The scorings of a run from its first step on: when they are taken, and what they tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kosmos.config import RunConfig
from kosmos.data.quarantine import Incident
from kosmos.errors import ConfigError
from kosmos.evaluate.score import Scores
from kosmos.names import listed
from kosmos.runtime.parallel import Parallel
from kosmos.train.early import EarlyStopping
from kosmos.train.held_out import how_written, line_of, scores_of
from kosmos.train.measure import NO_METRICS

Rows = Sequence[Mapping[str, Any]]
"""Of ``held_out.jsonl``."""


class Scorings:
    """See the module. All ranks come to each of them.

    Args:
        score: takes a scoring and writes it down; None where nothing is held out.
        written: what was written down.
        say: what a person is told.
        metrics: of answers that are written, as of ``Measure.of``.
        parallel: the ranks that come to them.
    """

    def __init__(
        self,
        config: RunConfig,
        score: Callable[[], Scores | None],
        written: Callable[[], Rows],
        say: Callable[[str], None],
        metrics: Mapping[str, bool] = NO_METRICS,
        parallel: Parallel | None = None,
    ) -> None:
        self.every, self.steps = config.evaluate.every_steps, config.train.steps
        self.early = EarlyStopping(config.evaluate, metrics)
        self._score, self._written, self._say = score, written, say
        self._parallel = parallel or Parallel()
        waits = {
            "evaluate.best": config.evaluate.best,
            "evaluate.patience": config.evaluate.patience,
            "checkpoint.keep_best": config.checkpoint.keep_best,
        }
        self._waiting = next((field for field, value in waits.items() if value), None)
        self._looked: tuple[int, Scores] | None = None

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up what a checkpoint counts towards early stopping, or count anew where it counts by something else.

        Args:
            state: the checkpoint's.
        """
        self.early.load(state["early"])
        if not self.early.counts_by(state["early"]):
            first = 0 if self.early.from_first else 1
            up_to = state["step"] if self.early.looked is None else self.early.looked
            rows = {row["step"]: row for row in self._written() if first <= row["step"] <= up_to}  # of a step the last
            if self.early.written is not None:
                rows = {step: row for step, row in rows.items() if how_written(row) == self.early.written}
            found = ((step, scores_of(row)) for step, row in rows.items())
            self.early.count_anew((step, scores) for step, scores in found if scores is not None)

    def first(self) -> Scores | None:
        """The scoring before the first step.

        Raises:
            ConfigError: no document could be read of what the run is to be compared by, which then never has a figure.
        """
        scores = self._score()
        if scores is not None and self._waiting and (why := self._unread(scores)):
            raise self._parallel.found_by_all(ConfigError(f"{self._waiting}: {why}"))
        if scores is not None:
            self.early.look(scores, 0)
        return self._finite(self._doubted(scores), "before the first step")

    def _unread(self, scores: Scores) -> str | None:
        """That no document could be read of what scorings are compared by, why, and what to do; None where some was."""
        source = self.early.measure.source
        read = scores.overall.documents if source is None else scores.by_source.get(source)
        left_out = [i for i in scores.incidents if source in (None, i.source)]
        if read or not left_out:
            return None
        of, other = (f" of {source}", " or compare by another source") if source else ("", "")
        return (
            f"no held-out document{of} could be read, and nothing else is to be compared by; {_first(left_out)}; mend "
            f"its rows (kosmos data --check shows all){other}"
        )

    def after(self, step: int) -> bool:
        """Take the scoring that follows a step. Returns whether one does."""
        if follows := self._follows(step):
            self._look(step, self._score())
        return follows

    def take_up(self, step: int) -> Scores | None:
        """Go on behind a checkpoint: take its step's scoring where it was saved before that.

        Returns:
            What the run scored before its first step.
        """
        rows = self._written()
        if self._follows(step) and self.early.looked != step:
            scored = next((scores_of(row) for row in reversed(rows) if row["step"] == step), None)
            if scored is None:
                self._look(step, self._score())
            elif self.early.looked is not None:  # an old checkpoint's look is as good as taken
                self.early.look(scored, step)
        return scores_of(rows[0]) if rows and rows[0]["step"] == 0 else None

    def last(self, step: int, *, as_written: Callable[[], bool]) -> Scores | None:
        """The scoring behind the last step: the one that stopped the run early, or that it took when it ended before.

        Args:
            as_written: whether what is written down would be the same if it were scored now.
        """
        return self._finite(self._behind(step, as_written), f"behind step {step}")

    def _behind(self, step: int, as_written: Callable[[], bool]) -> Scores | None:
        if self._looked is not None and self._looked[0] == step:
            return self._looked[1]
        rows = self._written()
        if rows and rows[-1]["step"] == step and (scores := scores_of(rows[-1])) is not None and as_written():
            self._say(f"step {step} was scored already, as held_out.jsonl tells")
            return self._doubted(scores)
        return self._doubted(self._score())

    def _follows(self, step: int) -> bool:
        """Whether a scoring follows a step, the last one's aside."""
        return self.every is not None and step % self.every == 0 and 0 < step < self.steps

    def _look(self, step: int, scores: Scores | None) -> None:
        if scores is None:
            return
        self._looked = step, scores
        self._say(line_of(step, scores, self.early.measure.source))
        self._doubted(scores)
        self.early.look(scores, step)

    def _doubted(self, scores: Scores | None) -> Scores | None:
        """The same, with a warning where it is of no document, or of none of a source."""
        if scores is None:
            return None
        if not scores.overall.documents and not scores.by_source:
            why = f"; {_first(scores.incidents)}" if scores.incidents else ""
            self._say(f"warning: no held-out document could be read, so this scoring says nothing{why}")
        elif dead := sorted({incident.source for incident in scores.incidents} - set(scores.by_source)):
            firsts = (_first([i for i in scores.incidents if i.source == name]) for name in dead)
            self._say(
                f"warning: no held-out document of {listed(dead)} could be read, so the scores say nothing of it; "
                f"{'; '.join(firsts)}"
            )
        return scores

    def _finite(self, scores: Scores | None, when: str) -> Scores | None:
        """The same, with a warning where the loss is no number that could be compared."""
        if scores is not None and scores.overall.documents and not math.isfinite(loss := scores.overall.loss):
            bad = [name for name, score in scores.by_source.items() if not math.isfinite(score.loss)]
            of = f" ({listed(sorted(bad))})" if bad else ""
            self._say(
                f"warning: the held-out loss {when} is {loss:g}{of}, so nothing can be compared by it; the model gives "
                "numbers that are too large: lower train.learning_rate, or look at these documents"
            )
        return scores


def _first(incidents: Sequence[Incident]) -> str:
    """Why the first of them was left out, as the quarantine has it."""
    return f"the first of {len(incidents):,}: {incidents[0].origin}: {incidents[0].cause}"
