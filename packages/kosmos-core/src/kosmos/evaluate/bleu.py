"""BLEU of all texts together, as SacreBLEU has it. No torch."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kosmos.evaluate.metrics import SeveralMetric

Smooth = Literal["exp", "add_one", "none"]
_TOKENS = (
    (re.compile(r"([{-~\[-` -&(-+:-@/])"), r" \1 "),
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
"""Of 13a: punctuation apart, periods and commas unless between digits, and dashes behind digits."""
_ESCAPED = {"&quot;": '"', "&amp;": "&", "&lt;": "<", "&gt;": ">"}


def bleu(*, order: int = 4, smooth: bool | Smooth = "exp") -> SeveralMetric:
    """Corpus BLEU in the tokenization of SacreBLEU (13a), from 0 to 1. It is 0 where no answer has ``order`` words.

    Of several references each gives n-grams that are right, and the one nearest in length counts for the brevity.

    Args:
        order: longest n-grams that count.
        smooth: what is done where none of an order is right. ``exp`` counts half of one for the first such order, a
            quarter for the next and so on, as SacreBLEU does; ``none`` gives 0, and so does ``add_one``, which adds one
            to the counts of all orders from 2 on. ``true`` is ``add_one``, ``false`` is ``none``.

    Source: Post, A Call for Clarity in Reporting BLEU Scores (2018), with the defaults of SacreBLEU 2, and for ``exp``
    Chen and Cherry, A Systematic Comparison of Smoothing Techniques (2014), method 3.
    """
    named: Smooth = ("add_one" if smooth else "none") if isinstance(smooth, bool) else smooth
    return _Bleu(order, named)


@dataclass(frozen=True)
class _Bleu:
    order: int
    smooth: Smooth

    def __call__(self, predictions: list[str], references: list[str]) -> float:
        return self.of_several(predictions, [[reference] for reference in references])

    def of_several(self, predictions: list[str], references: list[list[str]]) -> float:
        right, there = [0] * self.order, [0] * self.order
        said_words = right_words = 0
        for text, several in zip(predictions, references, strict=True):
            said, others = _words(text), [_words(one) for one in dict.fromkeys(several)]
            said_words += len(said)
            right_words += min((abs(len(one) - len(said)), len(one)) for one in others)[1]  # of two as near the shorter
            for place in range(self.order):
                own, known = _ngrams(said, place + 1), Counter[tuple[str, ...]]()
                for one in others:
                    known |= _ngrams(one, place + 1)
                right[place] += (own & known).total()
                there[place] += own.total()
        if not any(right) or not all(there):
            return 0.0
        brevity = min(0.0, 1 - right_words / said_words)
        precisions = self._precisions(right, there)
        return math.exp(brevity + sum(map(math.log, precisions)) / self.order) if all(precisions) else 0.0

    def _precisions(self, right: Sequence[int], there: Sequence[int]) -> list[float]:
        if self.smooth == "add_one" and all(right):
            return [right[0] / there[0], *((a + 1) / (b + 1) for a, b in zip(right[1:], there[1:], strict=True))]
        found, share = list[float](), 1.0
        for hits, count in zip(right, there, strict=True):
            if not hits and self.smooth == "exp":
                share /= 2
                found.append(share / count)
            else:
                found.append(hits / count)
        return found


def _words(text: str) -> list[str]:
    """The tokens of 13a."""
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for escaped, sign in _ESCAPED.items():
        text = text.replace(escaped, sign)
    text = f" {text} "
    for pattern, apart in _TOKENS:
        text = pattern.sub(apart, text)
    return text.split()


def _ngrams(words: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[begin:] for begin in range(length)), strict=False))
