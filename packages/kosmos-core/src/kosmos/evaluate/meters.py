"""Losses by source and modality: sums and counts, exact whatever the packing and the number of ranks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.batch import owner_of

if TYPE_CHECKING:
    from kosmos.data.batch import DocumentInfo


class LossMeter:
    """Sums of losses by source and by modality. A document counts for each modality that it holds."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0])

    def add(
        self, documents: Sequence[DocumentInfo], positions: NDArray[np.int64], losses: NDArray[np.floating[Any]]
    ) -> None:
        """``losses`` [n] of the trained ``positions`` [n] of a row."""
        self.add_owned(documents, owner_of(documents, positions), losses)

    def add_owned(
        self, documents: Sequence[DocumentInfo], owner: NDArray[np.int64], losses: NDArray[np.floating[Any]]
    ) -> None:
        """``losses`` [u] of units of a row, each of the document of that number."""
        total = np.bincount(owner, weights=losses, minlength=len(documents))
        count = np.bincount(owner, minlength=len(documents))
        for document, loss, number in zip(documents, total.tolist(), count.tolist(), strict=True):
            for key in (("source", document.source), *(("modality", m) for m in document.modalities)):
                self.sums[key][0] += loss
                self.sums[key][1] += number

    def merge(self, others: Sequence[dict[tuple[str, str], list[float]]]) -> None:
        """Take the sums of all ranks in place of the own."""
        self.sums.clear()
        for other in others:
            for key, (loss, count) in other.items():
                self.sums[key][0] += loss
                self.sums[key][1] += count

    def means(self, by: str) -> dict[str, float]:
        """Mean loss a target token, by ``"source"`` or ``"modality"``."""
        found = {name: loss / count for (kind, name), (loss, count) in self.sums.items() if kind == by and count}
        return dict(sorted(found.items()))


def standard_error(share: float | None, count: int) -> float | None:
    """Of a share of ``count`` documents, as if they were drawn at random; None where there is no share.

    Source: sqrt(p (1 - p) / n), the standard deviation of a binomial share.
    """
    return None if share is None else math.sqrt(share * (1 - share) / count)


def perplexity(loss: float) -> float:
    """exp of a mean loss in nats; infinite past the range of a float."""
    return math.inf if loss >= 700 else math.exp(loss)
