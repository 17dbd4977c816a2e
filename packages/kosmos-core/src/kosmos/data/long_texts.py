"""Texts of many rows, given piece by piece between others: a lane that read a book at once would train on nothing else.

Of each source a few are open at a time, and each in turn gives a piece; while there is room for another, pieces and new
documents take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kosmos.data.plan import DocumentPlan

MOST_OPEN = 4
"""Long texts of a source that a lane has open. Each is held whole, 5 bytes a token."""


@dataclass
class LongText:
    """A text of which not all pieces are given."""

    draw: int
    next: int
    """Number of the piece that comes next."""
    pieces: Sequence[DocumentPlan]

    @property
    def left(self) -> float:
        """The share of it that is not given."""
        return 1 - self.next / len(self.pieces)


@dataclass
class LongTexts:
    """Those that a lane has open."""

    by_source: dict[int, list[LongText]] = field(default_factory=dict)
    """The one whose turn it is first."""
    gave: set[int] = field(default_factory=set)
    """Sources that gave a piece last, so that a new document is next."""

    def add(self, source: int, draw: int, pieces: Sequence[DocumentPlan], first: int = 1) -> None:
        """Keep the pieces of a document from number ``first`` on, if there are any."""
        if first < len(pieces):
            self.by_source.setdefault(source, []).append(LongText(draw, first, pieces))

    def give(self, source: int) -> tuple[int, int, DocumentPlan] | None:
        """Draw, number and plan of the piece that is next; None where a new document of the source is."""
        texts = self.by_source.get(source)
        if not texts or (source in self.gave and len(texts) < MOST_OPEN):
            self.gave.discard(source)
            return None
        self.gave.add(source)
        text = texts.pop(0)
        self.add(source, text.draw, text.pieces, text.next + 1)
        return text.draw, text.next, text.pieces[text.next]

    def left(self) -> dict[int, float]:
        """Source to the documents that were drawn and not given yet, in parts of documents."""
        return {source: sum(text.left for text in texts) for source, texts in self.by_source.items()}

    def state(self) -> dict[str, Any]:
        open_now = [[source, text.draw, text.next] for source, texts in self.by_source.items() for text in texts]
        return {"open": open_now, "gave": sorted(self.gave)}

    def load(self, state: Mapping[str, Any], plans: Callable[[int, int], Sequence[DocumentPlan]]) -> None:
        """Go on from ``state``. Checkpoints from before there was such a thing hold none.

        Args:
            plans: of a source and a draw.
        """
        self.by_source, self.gave = {}, set(state.get("gave", ()))
        for source, draw, first in state.get("open", ()):
            self.add(source, draw, plans(source, draw), first)
