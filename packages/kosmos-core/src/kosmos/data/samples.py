"""Core's own sample set: sums in words. Generated, deterministic, honest to learn and to fail at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kosmos.data.document import Document, Text
from kosmos.errors import ConfigError

_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()  # noqa: E501
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(number: int) -> str:
    """0 to 99 in English words."""
    if number < 20:
        return _ONES[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f" {_ONES[ones]}" if ones else "")


@dataclass(frozen=True)
class SumsSource:
    """``three plus four is`` -> `` seven``, for all pairs up to ``largest``; the held-out pairs are never trained on.

    Args:
        split: a fixed tenth of the pairs is held out.
        largest: summand, at most 49: sums are said in words up to 99.
        name: what metrics call it, where the source has no ``name`` beside its path.
    """

    split: Literal["train", "held_out"]
    largest: int = 20
    name: str = "sums"

    def __post_init__(self) -> None:
        if not 1 <= self.largest <= 49:
            raise ConfigError(f"largest: expected 1 to 49, got {self.largest}")

    def _pairs(self) -> list[tuple[int, int]]:
        pairs = [(a, b) for a in range(self.largest + 1) for b in range(self.largest + 1)]
        order = np.random.Generator(np.random.PCG64(0)).permutation(len(pairs)).tolist()
        held = len(pairs) // 10
        return [pairs[i] for i in (order[:held] if self.split == "held_out" else order[held:])]

    def __len__(self) -> int:
        total = (self.largest + 1) ** 2
        return total // 10 if self.split == "held_out" else total - total // 10

    def document(self, index: int) -> Document:
        a, b = self._pairs()[index]
        question = Text(f"{in_words(a)} plus {in_words(b)} is ")
        return Document(f"{self.name}:{self.split} {index}", (question, Text(in_words(a + b), train=True)))
