"""A scoring of a run: losses of what is held out, questions, and answers that the model writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from kosmos.compose import Composition
from kosmos.config_written import WrittenConfig
from kosmos.data.batch import PackedBatch
from kosmos.data.document import Source
from kosmos.errors import NoToken, PluginError, SampleError
from kosmos.evaluate.answer import Generated
from kosmos.evaluate.answer_rows import answer_row
from kosmos.evaluate.answer_scores import figures_of, only_expected, scores_of_each, text_metrics, without_several
from kosmos.evaluate.choices import score_both
from kosmos.evaluate.generated import Writing, answer_documents
from kosmos.evaluate.metrics import TextMetric
from kosmos.evaluate.score import Scores, ScoringStopped
from kosmos.model.loss import TokenLosses
from kosmos.train.held_out import row_of
from kosmos.train.measure import Measure
from kosmos.train.opening import Opened
from kosmos.train.whole_model import WholeModel


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
        self._told: set[str] = set()
        self._kept: dict[str, list[Generated]] = {}
        """By source, of the last scoring, those whose texts are kept."""
        if self.settings.generate:
            self._metrics = text_metrics(made.registry, self.settings.metrics)
            self._whole = WholeModel(made, opened.device)

    def scores(self) -> Scores:
        """Raises ScoringStopped where some rank is to stop."""
        run = self._opened
        self._kept = {}
        scores = score_both(
            run.composition, run.held_out, run.choices,
            device=run.device, dtype=run.dtype, max_documents=self.settings.max_documents, workers=run.workers,
            parallel=run.parallel, losses=self._losses, should_stop=self._should_stop, at=self._at,
        )  # fmt: skip
        if self.settings.generate is None:
            return scores
        try:
            return replace(scores, generated=self._written(self.settings.generate))
        except NoToken as error:  # as all ranks have it
            why: Exception = error
        except torch.OutOfMemoryError as error:
            if run.parallel.world_size > 1:  # others may be in an exchange
                raise
            why = error
        self._warn(f"no answers were written this time: {why}")
        return scores

    def row_of(self, step: int, scores: Scores) -> dict[str, Any]:
        """As a row of ``held_out.jsonl``."""
        questions = [source.name for source in self._opened.choices]
        lower = [name for name, is_lower in self._opened.metrics.items() if is_lower]
        how = self.settings.generate.how if self.settings.generate else None
        return row_of(step, scores, questions, lower, how)

    def answer_rows(self, step: int) -> list[dict[str, Any]]:
        """The answers of the last scoring that are kept, each with what it has in the metrics that score it by itself.
        None on other ranks than the first."""
        if not self._opened.parallel.is_main:
            return []
        rows: list[dict[str, Any]] = []
        for source, answers in self._kept.items():
            each = scores_of_each(answers, self._metrics)
            rows += [
                {"step": step, **answer_row(answer, source), **({"scores": scores} if scores else {})}
                for answer, scores in zip(answers, each, strict=True)
            ]
        return rows

    def _written(self, wanted: WrittenConfig) -> dict[str, dict[str, float]]:
        """By source, of those with answers: how many were written, and each metric of them."""
        with self._whole.lent() as composition:
            answers = {source.name: self._answers(composition, source, wanted) for source in self._opened.held_out}
        self._kept = {name: found[: wanted.kept] for name, found in answers.items()}
        return {name: self._figures(name, found) for name, found in answers.items() if found}

    def _answers(self, composition: Composition, source: Source, wanted: WrittenConfig) -> list[Generated]:
        run = self._opened

        def is_to_stop() -> bool:  # asked at every token
            self._at("writing answers")
            return self._should_stop()

        unread: list[tuple[int, SampleError]] = []
        groups = answer_documents(
            composition, source,
            device=run.device, dtype=run.dtype, max_documents=min(wanted.documents, self.settings.max_documents),
            how=Writing(max_new_tokens=wanted.max_new_tokens, stop=tuple(wanted.stop)),
            parallel=run.parallel, should_stop=is_to_stop, leave_out=lambda row, error: unread.append((row, error)),
        )  # fmt: skip
        found = [answer for group in groups for answer in group]
        if any(run.parallel.gather(self._should_stop())):
            raise ScoringStopped
        if unread:
            row, error = unread[0]
            self._warn_once(f"{source.name}: of {len(unread)} documents no answer can be written; row {row}: {error}")
        return found

    def _figures(self, source: str, answers: Sequence[Generated]) -> dict[str, float]:
        """As ``figures_of``, without the metrics that fail."""
        failed: list[PluginError] = []
        figures = self._opened.parallel.main_only(
            lambda: figures_of(answers, self._metrics, failed.append, finite=True)
        )
        missing = [name for name in self._metrics if name not in figures]
        for name, error in zip(missing, failed, strict=False):  # the first rank alone has the errors
            self._warn_once(f"{source}: {error}; {self._without(source, name)}")
        if alone := without_several(answers, self._metrics):
            self._warn_once(only_expected(alone))
        return figures

    def _without(self, source: str, metric: str) -> str:
        """What it means that a metric of a source has no figure."""
        best = Measure.of(self.settings.best, self._opened.metrics)
        if (best.source, best.name) != (source, metric):
            return "such a scoring is without it"
        return (
            "evaluate.best names it, so such a scoring counts for nothing: evaluate.patience, checkpoint.keep_best and "
            "--step best pass over it, and where every scoring is such none of them does anything"
        )

    def _warn_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._warn(line)
