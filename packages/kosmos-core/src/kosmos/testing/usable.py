"""The rows of a source as a run takes them: a bad sample costs itself alone. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kosmos.data.document import Document
from kosmos.errors import SampleError


def row_of(source: Any, index: int) -> Document | SampleError:
    """The document of a row, or why it cannot be used."""
    try:
        document: Document = source.document(index)
    except SampleError as error:
        return error
    return document


def usable(source: Any) -> Iterator[Document]:
    """The documents of all rows that can be used, in their order."""
    for index in range(len(source)):
        if not isinstance(found := row_of(source, index), SampleError):
            yield found
