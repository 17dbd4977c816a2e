"""What a document becomes before its media are decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Media, StoredMedia
from kosmos.data.processor import MediaPlan


@dataclass(frozen=True, slots=True, eq=False)
class PlannedMedia:
    """A medium with the plan by which it will be decoded."""

    media: Media | StoredMedia
    plan: MediaPlan
    stream: str


@dataclass(frozen=True, slots=True, eq=False)
class DocumentPlan:
    """A tokenized document with empty slots for media. L = its tokens."""

    origin: str
    modalities: tuple[str, ...]
    token_ids: NDArray[np.int32]
    """[L]; slots hold the padding token."""
    train: NDArray[np.bool_]
    """[L]: whether the loss looks at the prediction of this token."""
    media: tuple[PlannedMedia, ...]
    slots: Mapping[str, NDArray[np.int32]]
    """For each stream that it uses: positions of its slots, in the order of its items."""
    answer_start: int | None = None
    """Where the last trained text begins, if something untrained precedes it and nothing else follows:
    what generation from the rest should give."""
    is_torn: bool = False
    """A piece that may have lost its sense, as of what is asked and answered; not one of a long text."""
    share: float = 1.0
    """Of its document, of which a piece is a part."""
    is_part: bool = False
    """Whether it has some segments of its document, that is cut between them."""
    first_media: int = 0
    """Media of its document in front of those that it has itself."""
    counts: bool = True  # as its document: of pieces it is the first that something is learned of
    weight: float = 1.0
    """As of its document."""
    lost: tuple[str, ...] = ()
    """Why each medium that was left out of its document was (``kosmos.data.lost_media``)."""
    let_go: bool = False
    """Whether its media are to be read again before they are decoded (``kosmos.data.waiting_media``)."""
    chosen: int | None = None
    """Tokens of the first of a pair, the better one; behind it is the worse one. None where it is no pair."""
    chosen_media: int = 0
    """Media of the better one of a pair; behind them are those of the worse one."""
    cells_by_stream: Mapping[str, int] = field(init=False, repr=False)
    """Of its media; streams that it does not use are left out."""
    work: tuple[str, int] = field(init=False, repr=False)
    """The stream of which it has most cells, and how many; without media "" and its tokens."""
    held: int = field(init=False, repr=False)
    """Bytes of media that it holds; those in files are not among them."""

    def __post_init__(self) -> None:
        cells: dict[str, int] = {}
        held = 0
        for media in self.media:
            cells[media.stream] = cells.get(media.stream, 0) + media.plan.cells
            held += _held(media.media)
        most = max(cells, key=cells.__getitem__, default="")
        work = (most, cells[most]) if cells.get(most) else ("", len(self.token_ids))
        object.__setattr__(self, "cells_by_stream", cells or _NO_CELLS)
        object.__setattr__(self, "work", work)
        object.__setattr__(self, "held", held)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of its documents: of one, or of the two of a pair."""
        return (len(self),) if self.chosen is None else (self.chosen, len(self) - self.chosen)

    @property
    def media_by_document(self) -> tuple[tuple[PlannedMedia, ...], ...]:
        """The media of its documents, as ``lengths``."""
        return (
            (self.media,) if self.chosen is None else (self.media[: self.chosen_media], self.media[self.chosen_media :])
        )

    def cells(self, stream: str) -> int:
        return self.cells_by_stream.get(stream, 0)


_NO_CELLS: dict[str, int] = {}
"""One for all that have none: most texts wait in thousands."""


def _held(media: Media | StoredMedia) -> int:
    source = media.source
    return len(source) if isinstance(source, bytes) else source.nbytes if isinstance(source, np.ndarray) else 0
