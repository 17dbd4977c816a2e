"""A dataset of a plugin under the name that the run file gives it."""

from __future__ import annotations

from dataclasses import dataclass

from kosmos.data.document import Blocks, Document, Source
from kosmos.data.fingerprint import fingerprint_of
from kosmos.data.foreign import calling
from kosmos.data.shuffle import blocks_of


@dataclass(eq=False)
class Renamed:
    """A source under another name (a ``Source``)."""

    name: str
    source: Source

    def __len__(self) -> int:
        return len(self.source)

    def blocks(self) -> Blocks | None:
        return blocks_of(self.source)

    def fingerprint(self) -> str | None:
        return fingerprint_of(self.source)

    def document(self, index: int) -> Document:
        with calling(self.source, "document"):  # else it would bear this class's name
            return self.source.document(index)
