"""What a sample is: text and media in any order and number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

MediaSource = bytes | Path | NDArray[Any]
"""An encoded file as bytes, a path to one, or decoded values in the modality's own form."""


@dataclass(frozen=True, slots=True)
class Text:
    """A stretch of text; ``train`` says whether the loss looks at it."""

    text: str
    train: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """One special token by its name, such as ``<|user|>``. Text from data can never become a mark."""

    name: str
    train: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Media:
    """A medium that is still encoded (or an array in its modality's form)."""

    modality: str
    source: MediaSource
    clip: tuple[float, float] | None = None
    """Start and end in seconds, for media that have time. None takes the whole."""
    rate_hz: float | None = None
    """Samples or frames a second, where ``source`` is an array."""


Segment = Text | Mark | Media


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One sample. ``origin`` names it for humans: file and line, shard and row."""

    origin: str
    segments: tuple[Segment, ...]

    @property
    def media(self) -> Iterator[Media]:
        return (s for s in self.segments if isinstance(s, Media))

    @property
    def modalities(self) -> tuple[str, ...]:
        """The modalities that it holds, sorted; ``("text",)`` where it holds no media."""
        return tuple(sorted({m.modality for m in self.media})) or ("text",)


class Blocks(NamedTuple):
    """Which documents of a source are read together, as those of a row group of a parquet file are."""

    of: NDArray[np.int64]
    """Number of the block that each document is in: [documents]."""
    at_once: int
    """Blocks that may be kept while documents are drawn from them in turn: documents are shuffled among so many."""


class Source(Protocol):
    """Documents by number. Picklable, cheap to open, torch-free: data workers hold one each.

    Documents are drawn in random order. A source that reads many to get one has a method ``blocks() -> Blocks | None``
    beside these: each lane then draws from few blocks at a time, and comes to each block once in an epoch.
    """

    name: str
    """What metrics call it."""

    def __len__(self) -> int: ...

    def document(self, index: int) -> Document:
        """The document of row ``index``.

        Raises:
            SampleError: this row cannot be used; the others may.
        """
        ...
