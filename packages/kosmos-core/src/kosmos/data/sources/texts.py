"""The texts of sources, for training a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator

from kosmos.data.document import Source, Text
from kosmos.data.foreign import calling
from kosmos.errors import SampleError


def texts_of(source: Source) -> Iterator[str]:
    """Every stretch of text of a source, in order. Rows that cannot be used have none."""
    for index in range(len(source)):
        try:
            with calling(source, "document"):
                segments = source.document(index).segments
        except SampleError:
            continue
        yield from (segment.text for segment in segments if isinstance(segment, Text) and segment.text)
