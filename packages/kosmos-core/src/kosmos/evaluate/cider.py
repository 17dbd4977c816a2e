"""CIDEr-D: how much a text agrees with what several people wrote."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kosmos.evaluate.metrics import SeveralMetric, mean, words_of

Ngram = tuple[str, ...]
SCALE = 10
"""Of the scores as they are published."""


def cider(*, order: int = 4, sigma: float = 6.0) -> SeveralMetric:
    """CIDEr-D, from 0 to 10: the likeness of n-grams that few documents have, the mean over all references.

    How rare an n-gram is, the references of the answers that are scored say. So the score hangs on which these are, and
    of a single one it is 0. Words are lower-case, without punctuation: the tools of COCO have the tokenizer of the Penn
    Treebank, which parts words otherwise in places (``don't``), so that scores may differ a little from theirs.

    Args:
        order: longest n-grams that count.
        sigma: words by which a text may be longer or shorter without losing much.

    Source: Vedantam et al., CIDEr: Consensus-based Image Description Evaluation (2015), section 6.
    """
    return _Cider(order, sigma)


@dataclass(frozen=True)
class _Cider:
    order: int
    sigma: float

    def __call__(self, predictions: list[str], references: list[str]) -> float:
        return self.of_several(predictions, [[reference] for reference in references])

    def of_several(self, predictions: list[str], references: list[list[str]]) -> float:
        said = [_Counts.of(text, self.order) for text in predictions]
        right = [[_Counts.of(text, self.order) for text in several] for several in references]
        documents = Counter(ngram for several in right for ngram in set().union(*(one.counts for one in several)))
        rarity = {ngram: math.log(len(right) / count) for ngram, count in documents.items()}
        most = math.log(len(right))
        vectors = [_Vectors.of(one, rarity, most, self.order) for one in said]
        found = [
            mean([self._likeness(vector, _Vectors.of(one, rarity, most, self.order)) for one in several])
            for vector, several in zip(vectors, right, strict=True)
        ]
        return SCALE * mean(found)

    def _likeness(self, said: _Vectors, right: _Vectors) -> float:
        """Mean of the cosines of each order, in which what is said more often than it is right counts no more."""
        cosines = [
            sum(min(weight, others.get(ngram, 0.0)) * others.get(ngram, 0.0) for ngram, weight in own.items()) / lengths
            if (lengths := norm * other_norm)
            else 0.0
            for own, norm, others, other_norm in zip(
                said.weights, said.norms, right.weights, right.norms, strict=True
            )
        ]  # fmt: skip
        return mean(cosines) * math.exp(-((said.words - right.words) ** 2) / (2 * self.sigma**2))


@dataclass(frozen=True)
class _Counts:
    """N-grams of a text."""

    counts: Mapping[Ngram, int]
    words: int

    @classmethod
    def of(cls, text: str, order: int) -> _Counts:
        words = words_of(text)
        return cls(Counter(_ngrams(words, order)), len(words))


def _ngrams(words: Sequence[str], order: int) -> Iterator[Ngram]:
    for length in range(1, order + 1):
        yield from (tuple(words[begin : begin + length]) for begin in range(len(words) - length + 1))


@dataclass(frozen=True)
class _Vectors:
    """Weights of the n-grams of a text by their order: how often they are there, times how rare they are."""

    weights: Sequence[Mapping[Ngram, float]]
    norms: Sequence[float]
    words: int

    @classmethod
    def of(cls, text: _Counts, rarity: Mapping[Ngram, float], most: float, order: int) -> _Vectors:
        weights: list[dict[Ngram, float]] = [{} for _ in range(order)]
        for ngram, count in text.counts.items():
            weights[len(ngram) - 1][ngram] = count * rarity.get(ngram, most)
        return cls(weights, [math.hypot(*vector.values()) for vector in weights], text.words)
