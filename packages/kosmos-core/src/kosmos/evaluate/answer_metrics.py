"""Scores of short answers to questions, as their benchmarks have them."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass

from kosmos.evaluate.metrics import BestOf, Letters, SeveralMetric, composed, mean

AGREE = 3
"""People who have to give an answer for it to be right."""
_ARTICLES = frozenset(("a", "an", "the"))
_NUMBERS = {
    word: str(number)
    for number, word in enumerate("zero one two three four five six seven eight nine ten".split())
} | {"none": "0"}  # fmt: skip
_CONTRACTIONS = {
    f"{verb}nt": f"{verb}n't"
    for verb in "are ca could did do does had has have is might must need should was were wo would".split()
} | {"im": "i'm", "ive": "i've", "thats": "that's", "theres": "there's", "theyre": "they're", "youre": "you're"}
_BETWEEN_DIGITS = re.compile(r"(?<=\d),(?=\d)")
_PERIOD = re.compile(r"\.(?!\d)")
_SIGNS = Letters(".':")


def vqa_accuracy() -> SeveralMetric:
    """VQA's accuracy, from 0 to 1: an answer is right as far as three others give it.

    Each reference is left out once; of the others those that agree count a third each, up to one, and the mean of that
    is the score. So it needs about ten references a question, and of three it cannot be one. Where there is one
    reference, the answer has to equal it. Texts are compared in small letters, without articles and punctuation, with
    digits for the numbers from zero to ten.

    Source: Antol et al., VQA: Visual Question Answering (2015), and visualqa.org/evaluation.html. The list of
    contractions that get their apostrophe (``dont``) is shorter.
    """
    return _VqaAccuracy()


@dataclass(frozen=True)
class _VqaAccuracy:
    def __call__(self, predictions: list[str], references: list[str]) -> float:
        return self.of_several(predictions, [[reference] for reference in references])

    def of_several(self, predictions: list[str], references: list[list[str]]) -> float:
        return mean([value for value, _ in self.of_each(predictions, references)])

    def of_each(self, predictions: list[str], references: list[list[str]]) -> list[tuple[float, float]]:
        """What each answer adds to both sides of the ratio."""
        return [(_agreement(text, several), 1.0) for text, several in zip(predictions, references, strict=True)]


def _agreement(prediction: str, references: list[str]) -> float:
    plain = plain_answer(prediction)
    agree, count = sum(plain_answer(one) == plain for one in references), len(references)
    if count == 1:
        return float(agree)
    # Of the references that are left out in turn, ``agree`` are such and leave one less of them.
    without, with_all = min((agree - 1) / AGREE, 1), min(agree / AGREE, 1)
    return (agree * without + (count - agree) * with_all) / count


def plain_answer(text: str) -> str:
    """An answer as VQA compares it.

    Periods stay within numbers, commas within numbers go, apostrophes and colons stay, and all other punctuation
    becomes a space.
    """
    text = _BETWEEN_DIGITS.sub("", unicodedata.normalize("NFC", text).lower().replace("’", "'"))
    words = _PERIOD.sub("", text).translate(_SIGNS).split()
    words = [_NUMBERS.get(word, _CONTRACTIONS.get(word, word)) for word in words if word not in _ARTICLES]
    return " ".join(words)


def anls(*, threshold: float = 0.5) -> SeveralMetric:
    """Average normalized Levenshtein similarity, from 0 to 1: of several references the most similar.

    The similarity is one less the edits over the longer text's characters; where these edits come to ``threshold`` or
    more it is 0. Capital and small letters are the same, and so is any white space; characters are those of NFC.

    Args:
        threshold: share of the characters from which an answer is wrong.

    Source: Biten et al., Scene Text Visual Question Answering (2019).
    """

    def similarity(prediction: str, reference: str) -> float:
        from torchmetrics.functional.text import edit_distance

        said, right = (" ".join(composed(text.lower()).split()) for text in (prediction, reference))
        if said == right:
            return 1.0
        longest, least = max(len(said), len(right)), abs(len(said) - len(right))
        if least / longest >= threshold:  # edits are at least as many, and take long to count for long answers
            return 0.0
        apart = float(edit_distance([said], [right], reduction="sum")) / longest
        return 1 - apart if apart < threshold else 0.0

    return BestOf(similarity)


def relaxed_accuracy(*, tolerance: float = 0.05) -> SeveralMetric:
    """Share of answers that are right as ChartQA counts it: numbers by and large, other texts but for their case.

    A number is right where it differs from the reference by at most ``tolerance`` of that; ``5%`` is 0.05. Of several
    references any may be met. Texts are compared in NFC.

    Args:
        tolerance: largest difference as a share of the reference.

    Source: Masry et al., ChartQA (2022).
    """

    def is_right(prediction: str, reference: str) -> float:
        said, right = _number(prediction), _number(reference)
        if said is None or right is None:
            return float(composed(prediction.strip().lower()) == composed(reference.strip().lower()))
        return float(abs(said - right) <= tolerance * abs(right))

    return BestOf(is_right)


def _number(text: str) -> float | None:
    """The number that a text is; None where it is none, or not finite."""
    text = text.strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
