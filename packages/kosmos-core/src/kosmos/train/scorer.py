"""A scoring of a run: losses of what is held out, questions, and answers that the model writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from kosmos.config_written import WrittenConfig
from kosmos.data.batch import PackedBatch
from kosmos.errors import PluginError, TrainingError
from kosmos.evaluate.answer_scores import score_written, text_metrics
from kosmos.evaluate.choices import score_both
from kosmos.evaluate.generated import Writing
from kosmos.evaluate.metrics import TextMetric
from kosmos.evaluate.score import Scores, ScoringStopped
from kosmos.model.loss import TokenLosses
from kosmos.train.opening import Opened
from kosmos.train.whole_model import WholeModel

CANNOT_WRITE = (TrainingError, PluginError, torch.OutOfMemoryError)
"""Why no answers are written, at which a run does not end: weights of no use, a metric that fails, no memory."""


class Scorer:
    """See the module. All ranks come to each scoring.

    Args:
        losses: the forward pass as the ranks train it together.
        should_stop: whether this rank is to stop.
        at: told what begins.
        warn: told what a person should know.
    """

    def __init__(
        self,
        opened: Opened,
        losses: Callable[[PackedBatch], TokenLosses],
        *,
        should_stop: Callable[[], bool],
        at: Callable[..., None],
        warn: Callable[[str], None],
    ) -> None:
        self._opened, self._losses = opened, losses
        self._should_stop, self._at, self._warn = should_stop, at, warn
        made = opened.composition
        self.settings = made.config.evaluate
        self._metrics: Mapping[str, TextMetric] = {}
        if self.settings.generate:
            self._metrics = text_metrics(made.registry, self.settings.metrics)
            self._whole = WholeModel(made, opened.device)

    def scores(self) -> Scores:
        """Raises ScoringStopped where some rank is to stop."""
        run = self._opened
        scores = score_both(
            run.composition, run.held_out, run.choices,
            device=run.device, dtype=run.dtype, max_documents=self.settings.max_documents, workers=run.workers,
            parallel=run.parallel, losses=self._losses, should_stop=self._should_stop, at=self._at,
        )  # fmt: skip
        if self.settings.generate is None:
            return scores
        try:
            return replace(scores, generated=self._written(self.settings.generate))
        except CANNOT_WRITE as error:
            self._warn(f"no answers were written this time: {error}")
            return scores

    def _written(self, wanted: WrittenConfig) -> dict[str, dict[str, float]]:
        """By source, of those with answers: how many were written, and each metric of them."""
        run, phase = self._opened, "writing answers"

        def is_to_stop() -> bool:  # asked at every token
            self._at(phase)
            return self._should_stop()

        how = Writing(max_new_tokens=wanted.max_new_tokens, stop=tuple(wanted.stop))
        most = min(wanted.documents, self.settings.max_documents)
        with self._whole.lent() as composition:
            found = {}
            for source in run.held_out:
                found[source.name] = score_written(
                    composition, source, self._metrics,
                    device=run.device, dtype=run.dtype, max_documents=most, how=how, parallel=run.parallel,
                    should_stop=is_to_stop,
                )  # fmt: skip
                if any(run.parallel.gather(self._should_stop())):
                    raise ScoringStopped
        return {name: scores for name, scores in found.items() if scores}
