"""Documents of texts and media in order that may lose a medium, or be cut between two of their parts."""

from __future__ import annotations

from dataclasses import dataclass

from kosmos.data.document import Document


@dataclass(frozen=True, slots=True, eq=False)
class PageDocument(Document):
    """A document, no chat, whose source says what becomes of it where it cannot be learned as it is."""

    between: str | None = None
    """What begins a text that stands behind another one since the medium between them cannot be used and is left out;
    None where no medium may be."""
    lost: tuple[str, ...] = ()
    """Why each medium that its source could not give is left out."""
    is_cut: bool = False
    """Whether it is cut between its segments where it is longer than a row."""
