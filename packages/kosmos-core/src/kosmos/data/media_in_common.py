"""Which media documents are about, by their files alone: nothing of a medium is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Document, FileSpan, Source
from kosmos.data.sources.file_column import FILE_NAME
from kosmos.data.sources.source import RowSource
from kosmos.data.sources.splits import CHOSEN, GROUP, split_of
from kosmos.errors import SampleError


class Medium(NamedTuple):
    """A medium by where it lies."""

    file: str
    begin: int
    """The byte where it begins in the file."""
    clip: tuple[float, float] | None = None
    """The piece of it that is meant, in seconds; None where pieces do not count, too."""


COMMON_SHARE, COMMON_TIMES = 0.1, 4
"""A medium is no document's own where more than this share of them have it, and so many times as have most media."""


def are_common(counts: NDArray[np.int64], documents: int) -> NDArray[np.bool_]:
    """Which media stand in so many documents that they tell nothing of one, such as a logo or what stands for a medium
    that is missing.

    Args:
        counts: of documents that have each: [media].
        documents: how many there are.
    """
    usual = np.median(counts) if len(counts) else 0.0
    return counts > max(COMMON_SHARE * documents, COMMON_TIMES * usual)


def media_of(document: Document, *, clips: bool = False) -> set[Medium]:
    """The media that lie in files.

    Args:
        clips: whether two pieces of one medium are two.
    """
    found: set[Medium] = set()
    for medium in document.media:
        clip = medium.clip if clips else None
        if isinstance(medium.source, Path):
            found.add(Medium(str(medium.source.resolve()), 0, clip))
        elif isinstance(medium.source, FileSpan):
            found.add(Medium(str(medium.source.path.resolve()), medium.source.begin, clip))
    return found


def media_of_rows(source: RowSource, rows: Iterable[int], *, clips: bool = False) -> set[Medium]:
    """As ``media_of``, of documents of a source; what cannot be used has none."""
    found: set[Medium] = set()
    if source.modalities is not None and not source.modalities:
        return found
    for row in rows:
        with suppress(SampleError):  # is told where it is scored, or trained on
            found |= media_of(source.document(row), clips=clips)
    return found


def advice_on(held_out: Source) -> str:
    """What holds out all rows of a medium together, to stand behind a message; empty where no column tells
    it, or the data say themselves what is held out."""
    if not isinstance(held_out, RowSource) or not len(held_out):
        return ""
    columns = held_out.layout.columns
    if GROUP in columns or CHOSEN in columns:
        return ""
    try:
        row = held_out.table.row(int(held_out.rows[0]))
    except SampleError:
        return ""
    stated = row.get(columns.get("split", "split"))
    if split_of(stated) is not None or any(getattr(held_out.table, "splits", ())):
        return ""
    if not (column := _column_of_media(held_out, row)):
        return ""
    return f"; to hold out all rows of a medium together name the column that tells it (columns: {{{GROUP}: {column}}})"


def _column_of_media(source: RowSource, row: Mapping[str, Any]) -> str:
    """The column that names the medium of a row; empty where none does as a text."""
    named = [source.layout.columns.get(name, name) for name in source.modalities or ()]
    return next((name for name in (*named, FILE_NAME) if isinstance(row.get(name), str)), "")
