"""Which of several answers a model holds to be the likeliest, and how often that is the right one."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kosmos.compose import Composition
from kosmos.data.batch import DocumentInfo, PackedBatch
from kosmos.data.choices import ANSWER, ChoiceSource
from kosmos.data.document import Source
from kosmos.data.quarantine import Incident
from kosmos.errors import ConfigError, SampleError
from kosmos.evaluate.examples import pass_over_broken
from kosmos.evaluate.meters import standard_error
from kosmos.evaluate.score import NOTHING, Score, Scores, score
from kosmos.model.loss import TokenLosses
from kosmos.runtime.parallel import Parallel

NOT_FINITE = "its likelihood is not finite: the weights are of no use; take an earlier checkpoint (--step)"


@dataclass(frozen=True)
class Chosen:
    """One question, and how likely each of its answers is held to be."""

    source: ChoiceSource
    place: int
    """Of the question in ``source``."""
    log_probabilities: tuple[float, ...]
    """Of each answer, in nats: of all its tokens."""

    @property
    def answers(self) -> tuple[str, ...]:
        """What is offered."""
        return self.source.offers[self.place].answers

    @property
    def right(self) -> int:
        """Number of the right answer."""
        return self.source.offers[self.place].right

    @property
    def by_length(self) -> tuple[float, ...]:
        """The logarithms over the bytes of UTF-8 of each answer."""
        sizes = (len(answer.encode()) for answer in self.answers)
        return tuple(value / size for value, size in zip(self.log_probabilities, sizes, strict=True))

    def is_right(self, values: Sequence[float]) -> bool:
        """Whether the answer of the highest value is the right one, which may be offered twice."""
        return self.answers[values.index(max(values))] == self.answers[self.right]


Choose = Callable[[Chosen], None]
"""Told of a question that is scored."""


@dataclass(frozen=True)
class ChoiceScore:
    """Of the questions of one source."""

    documents: int
    accuracy: float | None
    """Share of the questions whose right answer is the likeliest; None where there is no question."""
    accuracy_standard_error: float | None
    accuracy_by_length: float | None
    """Likewise, by the logarithm of the probability over the answer's bytes of UTF-8."""
    accuracy_by_length_standard_error: float | None
    chance: float | None
    """What guessing would give."""

    @classmethod
    def of(cls, questions: Sequence[Chosen]) -> ChoiceScore:
        """Of these together."""
        asked = len(questions)
        right = sum(question.is_right(question.log_probabilities) for question in questions)
        by_length = sum(question.is_right(question.by_length) for question in questions)
        chance = sum(
            question.answers.count(question.answers[question.right]) / len(question.answers) for question in questions
        )
        shares = [number / asked if asked else None for number in (right, by_length, chance)]
        errors = [standard_error(share, asked) for share in shares]
        return cls(asked, shares[0], errors[0], shares[1], errors[1], shares[2])

    def as_score(self) -> Score:
        """As that of documents, whose answers are right where the right one is the likeliest."""
        return replace(NOTHING, documents=self.documents, exact_match=self.accuracy, answers=self.documents)


def score_choices(
    composition: Composition,
    sources: Sequence[ChoiceSource],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    workers: int = 1,
    chosen: Choose = lambda question: None,
    parallel: Parallel | None = None,
    losses: Callable[[PackedBatch], TokenLosses] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    at: Callable[..., None] = lambda phase, **more: None,
) -> tuple[dict[str, ChoiceScore], tuple[Incident, ...]]:
    """Score every question, by source, and name those that are left out: ``kosmos eval --choices``.

    The likelihood of an answer is that of its own tokens behind the question, without one for its end, unless an answer
    of the question begins with all of another; see ``ChoiceSource.document``.
    Questions of which any answer cannot be read are left out as a whole.

    Args:
        sources: such as ``open_choices`` gives.
        device: None and ``auto`` are where the model is.
        dtype: of matrix products.
        workers: processes that decode; 0 decodes here.
        chosen: told of each question that counts, in the order of the sources.
        parallel: the processes that share the questions. All of them call this, and get the same scores.
        losses: as of ``score``.
        should_stop: asked before every row.
        at: told what begins, row by row.

    Raises:
        ConfigError: an argument is something else than its type says.
    """
    if not all(isinstance(source, ChoiceSource) for source in sources):
        raise ConfigError(f"sources: expected a list of what open_choices gives, got {sources!r:.60}")
    found: dict[tuple[str, str], float] = {}

    def told(document: DocumentInfo, losses: NDArray[np.float64]) -> None:
        found[document.source, document.origin] = float(losses.sum())

    parallel = parallel or Parallel()
    composition = replace(composition, planner=composition.planner.for_scores())
    no_examples = pass_over_broken(composition, sources, parallel, workers=workers, should_stop=should_stop, at=at)
    scores = score(
        composition, sources, device=device, dtype=dtype, max_documents=max(1, *map(len, sources)), workers=workers,
        told=told, allow_none=True, parallel=parallel, losses=losses, should_stop=should_stop, at=at,
    ) if any(map(len, sources)) else None  # fmt: skip
    found = {answer: loss for of_rank in parallel.gather(found) for answer, loss in of_rank.items()}
    broken = {row: replace(i, origin=row) for i in scores.incidents if (row := _row(i.origin))} if scores else {}
    incidents = [*(incident for source in sources for incident in source.incidents), *broken.values()]
    incidents += [one for one in no_examples if one.origin not in broken]
    results = {}
    for source in sources:
        result, unknown = _of_source(source, found, broken, chosen)
        examples = f" and its {source.shots} examples" if source.shots else ""
        longer = f"with its question{examples} it takes more than the {composition.planner.most:,} tokens of a row"
        causes = {answer: NOT_FINITE if (source.name, answer) in found else longer for answer in unknown}
        incidents += [Incident(answer, source.name, SampleError.code, cause) for answer, cause in causes.items()]
        results[source.name] = result
    return results, tuple(incidents)


def score_both(
    composition: Composition,
    sources: Sequence[Source],
    choices: Sequence[ChoiceSource],
    *,
    max_documents: int,
    **how: Any,
) -> Scores:
    """Scores of documents, of which there may be none, and of questions beside them.

    Questions are a source whose exact match is the share of them whose right answer is the likeliest. They have no
    loss, and are not among all documents.

    Args:
        max_documents: of each of ``sources``.
        how: arguments of ``score``, which both take.
    """
    scores = Scores(NOTHING, {}, {}, ())
    if sources:
        scores = score(composition, sources, max_documents=max_documents, allow_none=True, **how)
    if not choices:
        return scores
    found, incidents = score_choices(composition, choices, **how)
    asked = {name: its.as_score() for name, its in found.items() if its.documents}
    return replace(scores, by_source={**scores.by_source, **asked}, incidents=(*scores.incidents, *incidents))


def _row(origin: str) -> str:
    return origin.rpartition(ANSWER)[0]


def _of_source(
    source: ChoiceSource, found: Mapping[tuple[str, str], float], broken: Collection[str], chosen: Choose
) -> tuple[ChoiceScore, list[str]]:
    """The score, and of questions that are left out an answer of which no likelihood is known."""
    asked: list[Chosen] = []
    unknown: list[str] = []
    for place, offer in enumerate(source.offers):
        origins = [source.origin(source.number(place, answer)) for answer in range(len(offer.answers))]
        each = np.asarray([found.get((source.name, origin), math.nan) for origin in origins])
        if not np.isfinite(each).all():
            unknown += [] if _row(origins[0]) in broken else [origins[int(np.isfinite(each).argmin())]]
            continue
        asked.append(Chosen(source, place, tuple((-each).tolist())))
        chosen(asked[-1])
    return ChoiceScore.of(asked), unknown
