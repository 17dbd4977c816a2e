"""Scores of generated against expected texts, from torchmetrics where it has them.

A metric is a function of texts written and texts expected. One that can take several right answers has a method
``of_several`` beside that, and one that is a ratio of sums over the answers, as a mean is, ``of_each``. Those of
answers to questions are in ``answer_metrics``, and ``bleu`` and ``cider`` are in modules of their own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

TextMetric = Callable[[list[str], list[str]], float]
"""(predictions, references) of equal length, at least one, to a number."""


class SeveralMetric(Protocol):
    """A ``TextMetric`` that takes several right answers, too."""

    def __call__(self, predictions: list[str], references: list[str]) -> float: ...

    def of_several(self, predictions: list[str], references: list[list[str]]) -> float:
        """As the call, with at least one reference for each prediction; of one each it gives the same."""
        ...


@dataclass(frozen=True)
class BestOf:
    """The mean of a score of two texts, for each prediction by the reference that gives most (a ``SeveralMetric``)."""

    score: Callable[[str, str], float]
    """Of a prediction and a reference."""

    def __call__(self, predictions: list[str], references: list[str]) -> float:
        return self.of_several(predictions, [[reference] for reference in references])

    def of_several(self, predictions: list[str], references: list[list[str]]) -> float:
        return mean([value for value, _ in self.of_each(predictions, references)])

    def of_each(self, predictions: list[str], references: list[list[str]]) -> list[tuple[float, float]]:
        """What each answer adds to both sides of the ratio."""
        pairs = zip(predictions, references, strict=True)
        # Of what several people have said much is the same.
        return [(max(self.score(said, one) for one in dict.fromkeys(several)), 1.0) for said, several in pairs]


@dataclass(frozen=True)
class ErrorRate:
    """Edits over what the references hold, of several the one with the fewest (a ``SeveralMetric``)."""

    compute: TextMetric
    units: Callable[[str], Sequence[str]]
    """What of a text is inserted, deleted and substituted."""
    plain: Callable[[str], str] = str
    """A text as it is compared."""

    def __call__(self, predictions: list[str], references: list[str]) -> float:
        return self._rate([*map(self.plain, predictions)], [*map(self.plain, references)])

    def of_several(self, predictions: list[str], references: list[list[str]]) -> float:
        return self._rate(*self._nearest(predictions, references))

    def of_each(self, predictions: list[str], references: list[list[str]]) -> list[tuple[float, float]]:
        """The edits of each answer, and what its reference holds."""
        found = []
        for text, several in zip(predictions, references, strict=True):
            said = self.plain(text)
            each = [(self._errors(said, right), right) for right in dict.fromkeys(map(self.plain, several))]
            edits, right = min(each, key=lambda one: one[0])
            found.append((float(edits), float(len(self.units(right)))))
        return found

    def _nearest(self, predictions: list[str], references: list[list[str]]) -> tuple[list[str], list[str]]:
        """Texts as they are compared, of several references the one with the fewest edits."""
        said, right = [*map(self.plain, predictions)], [[*map(self.plain, several)] for several in references]
        return said, [self._fewest(text, several) for text, several in zip(said, right, strict=True)]

    def _fewest(self, prediction: str, several: Sequence[str]) -> str:
        if len(several) == 1:
            return several[0]
        return min(several, key=lambda one: self._errors(prediction, one))

    def _rate(self, predictions: list[str], references: list[str]) -> float:
        if not any(map(self.units, [*predictions, *references])):
            return 0.0
        return self.compute(predictions, references)

    def _errors(self, prediction: str, reference: str) -> int:
        count = len(self.units(reference))
        return round(self.compute([prediction], [reference]) * count) if count else len(self.units(prediction))


def exact_match(*, ignore_case: bool = False) -> SeveralMetric:
    """Share of predictions that equal their reference, or any of several, white space at the ends aside.

    Texts are compared in NFC: a letter and its accent are the same as one character or as two.

    Args:
        ignore_case: take capital and small letters as the same.
    """

    def plain(text: str) -> str:
        return composed(folded(text.strip()) if ignore_case else text.strip())

    return BestOf(lambda prediction, reference: float(plain(prediction) == plain(reference)))


def word_error_rate(*, ignore_case: bool = False, ignore_punctuation: bool = False) -> SeveralMetric:
    """Word insertions, deletions and substitutions over the words of the references.

    Words are what stands between spaces, so that case and punctuation count unless the options say otherwise, and how
    accents are composed does not: texts are compared in NFC. Edits and
    words are summed over all texts before one is divided by the other: a reference without words counts by what was
    inserted. Of several references that with the fewest edits counts. Where no reference has a word: 0 if no prediction
    has one either, else infinite.

    Args:
        ignore_case: take capital and small letters as the same.
        ignore_punctuation: take Unicode's punctuation and symbols for spaces, but for apostrophes within words.
    """

    def compute(predictions: list[str], references: list[str]) -> float:
        from torchmetrics.functional.text import word_error_rate as rate

        return float(rate(predictions, references))

    return ErrorRate(compute, str.split, _plainly(ignore_case, ignore_punctuation))


def char_error_rate(*, ignore_case: bool = False, ignore_punctuation: bool = False) -> SeveralMetric:
    """Insertions, deletions and substitutions of characters over the characters of the references, spaces among them.

    Characters are those of NFC. Summed over all texts, and of several references, as ``word_error_rate`` has it. Where
    all references are empty: 0 if all predictions are empty too, else infinite.

    Args:
        ignore_case: take capital and small letters as the same.
        ignore_punctuation: take Unicode's punctuation and symbols for spaces, but for apostrophes within words, and any
            number of spaces for one, those at the ends for none.
    """

    def compute(predictions: list[str], references: list[str]) -> float:
        from torchmetrics.functional.text import char_error_rate as rate

        return float(rate(predictions, references))

    return ErrorRate(compute, list, _plainly(ignore_case, ignore_punctuation))


_WITHIN_A_WORD = re.compile(r"(?<=\w)['\u2019\u02bc](?=\w)")


def composed(text: str) -> str:
    """A text in NFC, where a letter with its accent is one character: models and data may have it as two."""
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


def folded(text: str) -> str:
    """Without case, as Unicode folds it: a sharp s is ss, and a dotted capital I is the small one."""
    return text.casefold().replace("i\u0307", "i")


def _plainly(ignore_case: bool, ignore_punctuation: bool) -> Callable[[str], str]:
    """How texts are compared."""
    if not (ignore_case or ignore_punctuation):
        return composed

    def plain(text: str) -> str:
        text = composed(folded(text) if ignore_case else text)
        return _without_punctuation(text) if ignore_punctuation else text

    return plain


def _without_punctuation(text: str) -> str:
    held = _WITHIN_A_WORD.sub("\0", text.replace("\0", " "))
    spaced = (" " if unicodedata.category(sign)[0] in "PS" else sign for sign in held)
    return " ".join("".join(spaced).split()).replace("\0", "'")


def rouge_l() -> SeveralMetric:
    """The longest common subsequence of words as F1 (ROUGE-L), from 0 to 1: the mean, of several references the best.

    Words are lower-case letters and digits of any script, without stemming.

    Source: Lin, ROUGE: A Package for Automatic Evaluation of Summaries (2004), with beta 1 as most programs have it.
    """
    return BestOf(_rouge_l)


def _rouge_l(prediction: str, reference: str) -> float:
    said, right = words_of(prediction), words_of(reference)
    if not said or not right:
        return float(said == right)
    # F1 of length/said and length/right.
    return 2 * _length_of_common(said, right) / (len(said) + len(right))


def _length_of_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence.

    Source: Hyyro, Bit-Parallel LCS-length Computation Revisited (2004): a bit of ``row`` is 0 where the length grows.
    """
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    row = every = (1 << len(one)) - 1
    for word in other:
        both = row & places.get(word, 0)
        row = (row + both) | (row - both)
    return len(one) - (row & every).bit_count()


class Letters(dict[int, int]):
    """For ``str.translate``: letters, digits, and the marks that some scripts put on them stay, all else is a space.

    Args:
        more: signs that stay, too.
    """

    def __init__(self, more: str = "") -> None:
        super().__init__((ord(sign), ord(sign)) for sign in more)

    def __missing__(self, code: int) -> int:
        stays = chr(code).isalnum() or unicodedata.category(chr(code)).startswith("M")
        self[code] = code if stays else ord(" ")
        return self[code]


_LETTERS = Letters()


def words_of(text: str) -> list[str]:
    """Its words in small letters, without punctuation. What has no spaces between words, as Chinese, is one word."""
    return unicodedata.normalize("NFC", text).lower().translate(_LETTERS).split()


def mean(values: Sequence[float]) -> float:
    """Of at least one."""
    return sum(values) / len(values)
