"""Scores of answers that are names of classes: F1, precision and recall of each class. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kosmos.evaluate.answer import Generated
from kosmos.evaluate.metrics import SeveralMetric, composed, folded, mean

MOST_CLASSES = 50
"""Of a source whose classes are told one by one: of more, what is expected is free text."""
Pair = tuple[str, str]
"""The answer, and the class that is expected."""


def macro_f1(*, ignore_case: bool = False) -> SeveralMetric:
    """The mean of the F1 of each class, from 0 to 1, in which rare classes count as much as frequent ones.

    The classes are the texts that are expected, white space at the ends aside and in NFC. An answer that is none of
    them is wrong for the class that is expected, and no class of its own. Of several right answers the one that was
    given counts as expected, or else the first.

    Args:
        ignore_case: take capital and small letters as the same.

    Source: F1 as 2 TP / (2 TP + FP + FN), as scikit-learn and torchmetrics have it. It is counted here, as these hold a
    table of all pairs of classes, which may be many where somebody scores free text.
    """
    return ClassMetric(_mean_f1, ignore_case)


def balanced_accuracy(*, ignore_case: bool = False) -> SeveralMetric:
    """The mean of the recall of each class, from 0 to 1: the share of right answers if all classes were as frequent.

    Classes are those of ``macro_f1``.

    Args:
        ignore_case: take capital and small letters as the same.

    Source: ``balanced_accuracy_score`` of scikit-learn, not adjusted for chance.
    """
    return ClassMetric(_mean_recall, ignore_case, of_one_class=True)


@dataclass
class ClassFigures:
    """Of the answers of which one class is expected, or that are it."""

    documents: int
    """Of which it is expected."""
    precision: float
    """Share of the answers that are this class and are right; 0 where none is."""
    recall: float
    """Share of the documents of which it is expected that are right."""
    f1: float
    answered: dict[str, int] = field(default_factory=dict)
    """Answers where it is expected, the most frequent first: a row of the table of confusion. Those that are no class
    are together under ``OTHER``."""


OTHER = "(other)"
"""What an answer that is none of the expected classes is called."""


@dataclass(frozen=True)
class ClassMetric:
    """A score of pairs of classes (a ``SeveralMetric``)."""

    compute: Callable[[Sequence[Pair]], float]
    """Of at least one pair."""
    ignore_case: bool = False
    of_one_class: bool = False
    """Whether it says something of documents that all expect the same class."""

    def __call__(self, predictions: list[str], references: list[str]) -> float:
        return self.of_several(predictions, [[reference] for reference in references])

    def of_several(self, predictions: list[str], references: list[list[str]]) -> float:
        return self.compute(self.pairs(predictions, references))

    def pairs(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[Pair]:
        """What was answered and what is expected, as they are compared."""
        return [self._pair(said, right) for said, right in zip(predictions, references, strict=True)]

    def plain(self, text: str) -> str:
        """A text as it is compared."""
        return composed(folded(text.strip()) if self.ignore_case else text.strip())

    def _pair(self, said: str, right: Sequence[str]) -> Pair:
        plain, classes = self.plain(said), [self.plain(one) for one in right]
        return plain, plain if plain in classes else classes[0]


def by_class(pairs: Sequence[Pair]) -> dict[str, ClassFigures]:
    """Figures of each class, the most frequent first."""
    expected, answered = Counter(right for _, right in pairs), Counter(said for said, _ in pairs)
    right = Counter(said for said, right in pairs if said == right)
    rows: dict[str, Counter[str]] = {}
    for said, of in pairs:
        rows.setdefault(of, Counter())[said if said in expected else OTHER] += 1
    found = {}
    for name, count in sorted(expected.items(), key=lambda entry: (-entry[1], entry[0])):
        hits = right[name]
        precision = hits / answered[name] if answered[name] else 0.0
        f1 = 2 * hits / (count + answered[name])
        found[name] = ClassFigures(count, precision, hits / count, f1, dict(rows[name].most_common()))
    return found


def _mean_f1(pairs: Sequence[Pair]) -> float:
    return mean([of.f1 for of in by_class(pairs).values()])


def _mean_recall(pairs: Sequence[Pair]) -> float:
    return mean([of.recall for of in by_class(pairs).values()])


def figures_by_class(answers: Sequence[Generated], metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Figures of each class as plain values; None where no metric is one of classes, or where there are too many."""
    metric = next((one for one in metrics.values() if isinstance(one, ClassMetric)), None)
    if metric is None or not answers:
        return None
    found = by_class(_pairs_of(answers, metric))
    return {name: asdict(of) for name, of in found.items()} if len(found) <= MOST_CLASSES else None


def need_other_classes(answers: Sequence[Generated], metrics: Mapping[str, Any]) -> list[str]:
    """Names of the metrics that say nothing of these answers, as all of them expect the same class: precision is always
    1 there, and agreement by chance complete."""
    of_classes = {name: one for name, one in metrics.items() if isinstance(one, ClassMetric) and not one.of_one_class}
    return [name for name, one in of_classes.items() if len({right for _, right in _pairs_of(answers, one)}) < 2]


def _pairs_of(answers: Sequence[Generated], metric: ClassMetric) -> list[Pair]:
    right = [list(answer.references) or [answer.expected or ""] for answer in answers]
    return metric.pairs([answer.text for answer in answers], right)
