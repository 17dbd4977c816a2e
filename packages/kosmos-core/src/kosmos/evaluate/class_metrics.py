"""Scores of answers that are names of classes: F1, precision and recall of each class. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kosmos.evaluate.answer import Generated
from kosmos.evaluate.metrics import SeveralMetric, composed, folded, mean

MOST_CLASSES = 50
"""Of a source whose classes are told one by one: of more, what is expected is free text."""


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
    return MacroF1(ignore_case)


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
class MacroF1:
    """See ``macro_f1``."""

    ignore_case: bool = False

    def __call__(self, predictions: list[str], references: list[str]) -> float:
        return self.of_several(predictions, [[reference] for reference in references])

    def of_several(self, predictions: list[str], references: list[list[str]]) -> float:
        return mean([of.f1 for of in self.by_class(predictions, references).values()])

    def by_class(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, ClassFigures]:
        """Figures of each class, the most frequent first."""
        pairs = [self._pair(said, right) for said, right in zip(predictions, references, strict=True)]
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

    def _pair(self, said: str, right: Sequence[str]) -> tuple[str, str]:
        plain, classes = self._plain(said), [self._plain(one) for one in right]
        return plain, plain if plain in classes else classes[0]

    def _plain(self, text: str) -> str:
        return composed(folded(text.strip()) if self.ignore_case else text.strip())


def figures_by_class(answers: Sequence[Generated], metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Figures of each class as plain values; None where no metric is ``macro_f1``, or where there are too many."""
    metric = next((one for one in metrics.values() if isinstance(one, MacroF1)), None)
    if metric is None or not answers:
        return None
    right = [list(answer.references) or [answer.expected or ""] for answer in answers]
    found = metric.by_class([answer.text for answer in answers], right)
    return {name: asdict(of) for name, of in found.items()} if len(found) <= MOST_CLASSES else None
