"""Chats whose turns follow each other as hardly anybody means: roles that were mixed up, a last question unanswered.

Some data sets have such rows for good reasons, so they are trained on as they are, and told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kosmos.data.document import Document, Mark, Segment
from kosmos.data.marks import ASSISTANT, SYSTEM, USER

ROLES = (SYSTEM, USER, ASSISTANT)
ANSWER_FIRST = "the assistant's turn first"
TWICE = "one role twice in turn"
LATE_SYSTEM = "the system's turn not first"
NO_ANSWER = "the user's turn last, so that nothing is learned of it"
ODDITIES = (ANSWER_FIRST, TWICE, LATE_SYSTEM, NO_ANSWER)


def oddities(segments: Sequence[Segment]) -> Iterator[str]:
    """Those of ``ODDITIES`` that a document shows; none where it has no turns."""
    roles = [part.name for part in segments if isinstance(part, Mark) and part.name in ROLES]
    if next((role for role in roles if role != SYSTEM), USER) == ASSISTANT:
        yield ANSWER_FIRST
    if any(one == other for one, other in pairwise(roles)):
        yield TWICE
    if SYSTEM in roles[1:]:
        yield LATE_SYSTEM
    if roles[-1:] == [USER]:
        yield NO_ANSWER


@dataclass
class TurnOrder:
    """Counts the documents of a source that show any."""

    documents: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """Documents that show each."""
    first: str = ""
    """Origin of the first by its place in the source."""
    _place: int = -1

    def look(self, place: int, document: Document) -> None:
        """Count a document. ``place`` is its number in the source."""
        found = list(oddities(document.segments))
        if found:
            self.documents += 1
            self.counts.update(found)
            if self._place < 0 or place < self._place:
                self._place, self.first = place, document.origin
