"""The texts of sources, for training a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kosmos.data.document import Source, Text
from kosmos.data.foreign import calling
from kosmos.errors import SampleError


@dataclass
class TextsRead:
    """What was read of some sources so far."""

    documents: int = 0
    """With a text."""
    nbytes: int = 0
    """Of UTF-8."""


def texts_of(source: Source, read: TextsRead | None = None) -> Iterator[str]:
    """Every stretch of text of a source, in order. Rows that cannot be used have none.

    Args:
        read: counts it.
    """
    for index in range(len(source)):
        try:
            with calling(source, "document"):
                segments = source.document(index).segments
        except SampleError:
            continue
        texts = [segment.text for segment in segments if isinstance(segment, Text) and segment.text]
        if read is not None:
            read.documents += bool(texts)
            read.nbytes += sum(len(text.encode(errors="surrogatepass")) for text in texts)
        yield from texts
