"""What data call a document that is asked, and what it asks, as lines of answers tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kosmos.data.document import Document, Mark, Source, Text
from kosmos.data.sources.source import Names, RowSource


class Called(NamedTuple):
    """What data call a document that is asked, and what it asks; as of ``Generated``."""

    origin: str
    id: str | int | None
    prompt: str
    media: tuple[str | None, ...]


def called(source: Source, row: int, asked: Document, examples: Sequence[Names] = ()) -> Called:
    """How to tell of what was asked of a row. Raises SampleError where the row cannot be read.

    Args:
        examples: what the data call the rows that stand in front of the question, and their files.
    """
    names = source.names(row) if isinstance(source, RowSource) else Names(asked.origin, None, {})
    files = {file: name for one in (*examples, names) for file, name in one.files.items()}
    media = tuple(_name(medium.source, files) for medium in asked.media)
    return Called(names.document, names.row, shown(asked), media)


def _name(medium: object, files: Mapping[Path, str]) -> str | None:
    """What the data call a medium's file. One that no row names is named by its last part, as a path is a machine's."""
    return files.get(medium, medium.name) if isinstance(medium, Path) else None


def shown(document: Document) -> str:
    """A document as text: a mark by its name, a medium as ``<image>``."""
    parts = []
    for segment in document.segments:
        match segment:
            case Text(text):
                parts.append(text)
            case Mark(name):
                parts.append(name)
            case _:
                parts.append(f"<{segment.modality}>")
    return "".join(parts)
