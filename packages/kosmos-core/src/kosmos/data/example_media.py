"""The media of questions that are to stand in front of others, as documents that data workers decode. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from kosmos.data.document import Document, Text
from kosmos.data.sources.source import RowSource
from kosmos.errors import SampleError


@dataclass(eq=False)
class ExampleMedia:
    """A document of the media of each of some rows (a ``Source``), with just enough text to be planned."""

    name: str
    source: RowSource
    rows: tuple[int, ...]
    """Of ``source``."""

    def __len__(self) -> int:
        return len(self.rows)

    def origin(self, index: int) -> str:
        """The name of a row."""
        return self.source.origin(self.rows[index])

    def document(self, index: int) -> Document:
        """The media of a row. Raises SampleError as ``source`` does."""
        origin = self.origin(index)
        try:
            media = self.source.document(self.rows[index]).media
        except SampleError as error:
            raise SampleError(str(error).removeprefix(f"{origin}: ")) from error
        return Document(origin, (*media, Text("1", train=True)))
