"""Values that tell rows apart and differ as hardly anybody means: in case, or as ``1`` and ``1.0``."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any

WHOLE = re.compile(r"([+-]?\d+)\.0+")
"""A whole number as tables write it whose column lacks one somewhere."""
MOST_KEPT = 1 << 18
"""Values with which later ones are compared."""


def folded(text: str) -> str:
    """Alike of texts that differ in case, in spaces around them, as 1 and 1.0, or in how Unicode spells them."""
    text = text.strip()
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    whole = WHOLE.fullmatch(text)
    return text.casefold() if whole is None else whole[1]


@dataclass
class Spellings:
    """The values of a column, as they come."""

    first: dict[str, str] = field(default_factory=dict)
    """Of each the first way in which it is written."""
    several: dict[str, str] = field(default_factory=dict)
    """Of those that are written otherwise, too, the first other way."""

    def add(self, value: Any) -> None:
        text = str(value)
        alike = folded(text)
        if (first := self.first.get(alike)) is None:
            if len(self.first) < MOST_KEPT:
                self.first[alike] = text
        elif first != text:
            self.several.setdefault(alike, text)

    @property
    def example(self) -> str:
        """Two that are alike; empty where none are."""
        pair = next(((self.first[alike], other) for alike, other in self.several.items()), None)
        return "" if pair is None else f"{pair[0]!r:.60} and {pair[1]!r:.60}"
