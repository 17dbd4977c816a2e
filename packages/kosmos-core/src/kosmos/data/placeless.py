"""Documents whose texts have the place of a medium, where none of that modality is: it is learned as letters.

Rows of chats whose column of media is empty, or has another name in some files, are so. Told, and not refused: a text
may be about such tags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from kosmos.data.document import Document, Text

_SAID = "it is learned as letters there"
MOST_CHARS = 64 * 1024
"""Of a text, from the beginning."""


class Placeless:
    """Counts them.

    Args:
        modalities: of the run.
    """

    def __init__(self, modalities: Iterable[str]) -> None:
        # At the edge of a line, as a place is written: in the midst of one it is what is talked of.
        blank = r"[^\S\n]*"
        tags = {name: f"<{re.escape(name)}>" for name in modalities}
        self._places = {n: re.compile(f"^{blank}{tag}|{tag}{blank}$", re.M) for n, tag in tags.items()}
        self.counts: Counter[str] = Counter()
        """By modality."""
        self.first = ""
        """Origin of the first of them."""

    def look(self, document: Document) -> None:
        there = {getattr(segment, "modality", "") for segment in document.segments}  # media, and codes of such
        asked = [s.text[:MOST_CHARS] for s in document.segments if isinstance(s, Text) and not s.train]
        for name, place in self._places.items():
            if name not in there and any(f"<{name}>" in text and self._is_place(place, name, text) for text in asked):
                self.counts[name] += 1
                self.first = self.first or document.origin

    @staticmethod
    def _is_place(place: re.Pattern[str], name: str, text: str) -> bool:
        return f"</{name}>" not in text and place.search(text) is not None


def placeless_line(source: str, modality: str, count: int, looked_at: int, first: str) -> str:
    """What a person is told of some documents of a source."""
    return (
        f"{source}: {count} of {looked_at} documents looked at have <{modality}> in a text and no {modality}, such as "
        f"{first}: {_SAID}; give each row its media, or leave such rows out"
    )


def is_placeless(line: str) -> bool:
    """Whether it is a ``placeless_line``."""
    return _SAID in line
