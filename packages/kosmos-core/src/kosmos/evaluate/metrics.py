"""Scores of generated against expected texts, from torchmetrics where it has them."""

from __future__ import annotations

from collections.abc import Callable

TextMetric = Callable[[list[str], list[str]], float]
"""(predictions, references) of equal length, at least one, to a number."""


def exact_match(*, ignore_case: bool = False) -> TextMetric:
    """Share of predictions that equal their reference, white space at the ends aside.

    Args:
        ignore_case: take capital and small letters as the same.
    """

    def plain(text: str) -> str:
        return text.strip().lower() if ignore_case else text.strip()

    return lambda predictions, references: _mean(
        [float(plain(p) == plain(r)) for p, r in zip(predictions, references, strict=True)]
    )


def word_error_rate() -> TextMetric:
    """Word insertions, deletions and substitutions over the words of the references.

    Where these have no word: 0 for predictions that have none either, else infinite.
    """

    def rate(predictions: list[str], references: list[str]) -> float:
        from torchmetrics.functional.text import word_error_rate as compute

        if not any(map(str.split, [*predictions, *references])):
            return 0.0
        return float(compute(predictions, references))

    return rate


def bleu(*, order: int = 4, smooth: bool = False) -> TextMetric:
    """Corpus BLEU in the tokenization of SacreBLEU (13a), from 0 to 1. It is 0 where no answer has ``order`` words.

    Args:
        order: longest n-grams that count.
        smooth: add one to the counts of n-grams. Where none of an order is right at all the score is 0 all the same.
    """

    def score(predictions: list[str], references: list[str]) -> float:
        from torchmetrics.functional.text import sacre_bleu_score

        return float(sacre_bleu_score(predictions, [[r] for r in references], n_gram=order, smooth=smooth))

    return score


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
