"""Rows that are scored without the media that they are about: of such a column nobody has said that it names them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from kosmos.data.sources.choices import ChoiceLayout
from kosmos.data.sources.chosen import others_left_out
from kosmos.data.sources.columns import is_empty
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.data.sources.source import RowSource, columns_of, row_with
from kosmos.errors import SampleError
from kosmos.names import listed

LOOKED_AT = 8
"""Rows in which a column is looked for that holds something."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_NAMES = frozenset(
    "id ids uid uuid idx index no number key path paths file files name names filename uri url src".split()
)
"""Words that stand beside that of a modality where a column says which medium is meant, and not what it is like."""
_LONGEST = 1024
"""Characters of a text that may name a file."""


def blind_of(source: object, modalities: Collection[str], say: str = "") -> Iterator[str]:
    """A line where no row of a source that is only scored holds a medium, though a column seems to name some.

    Args:
        source: documents, or questions that offer several answers (``ChoiceSource``).
        modalities: of the run.
        say: how columns are named, where it is not ``columns`` of the run file.
    """
    rows = getattr(source, "source", source)
    if not modalities or not isinstance(rows, RowSource) or not isinstance(rows.layout, DefaultLayout):
        return
    if rows.modalities is None or rows.modalities or others_left_out(rows.left_out) or _is_told(rows):
        return
    found = _columns(rows, rows.layout, modalities)
    if found:
        what = "question" if isinstance(rows.layout, ChoiceLayout) else "document"
        # The surest first: a column of files, then one whose name says that it holds such, and numbers last.
        surest = sorted(found, key=lambda column: (found[column].is_number, not _may_be_file(column)))[0]
        modality, by_number = found[surest]
        # Numbers name no file, and what is one elsewhere nobody knows.
        column, why = ("COLUMN", ", as numbers name no media") if by_number else (surest, "")
        yield (
            f"{rows.name}: no {what} holds a medium, and all are scored as text alone, though {listed(found)} may name "
            f"what they are about; if so, name a column of files (columns: {{{modality}: {column}}}), and their folder "
            f"(root){why}{say and f'; {say}'}"
        )


def _is_told(rows: RowSource) -> bool:
    """Whether opening it found columns of media whose files are not there."""
    return any("taken as text alone" in line for line in rows.remarks)


def _may_be_file(column: str) -> bool:
    return bool({"path", "file", "filename", "name"} & {word.lower() for word in _WORD.findall(column)})


class _Named(NamedTuple):
    """What a column seems to name."""

    modality: str
    is_number: bool


def _columns(rows: RowSource, layout: DefaultLayout, modalities: Collection[str]) -> dict[str, _Named]:
    """Columns that are not read and seem to name media."""
    numbers = [int(row) for row in rows.rows[:LOOKED_AT]]
    by_row = rows.table.row_blocks() is None  # of blocks whole ones would be read
    found: dict[str, _Named] = {}
    try:
        there = dict.fromkeys(column for row in numbers for column in columns_of(rows.table, row))
    except SampleError:
        return found
    used = layout.used(there)
    for column in there:
        called = _modality_in(column, modalities)
        if column in used or not (called or by_row):
            continue
        value = _first(rows, numbers, column)
        meant = _modality_of(value, layout.suffixes, modalities)
        if meant or (called and _is_name(value)):
            found[column] = _Named(meant or called, isinstance(value, int))
    return found


def _modality_in(column: str, modalities: Collection[str]) -> str:
    """The modality by which a column is called, beside words of names alone; empty where there is none."""
    words = [word.lower() for word in _WORD.findall(column)]
    for modality in modalities:
        own = {modality.lower(), f"{modality.lower()}s"}
        if own.intersection(words) and all(word in own or word in _NAMES or word.isdecimal() for word in words):
            return modality
    return ""


def _first(rows: RowSource, numbers: Sequence[int], column: str) -> Any:
    """What the first row has in a column that has something: the numbers 0 and -1 may say that there is none."""
    for number in numbers:
        try:
            value = row_with(rows.table, number, column).get(column)
        except SampleError:
            continue
        if not is_empty(value) and (isinstance(value, bool) or value not in (0, -1)):
            return value[0] if isinstance(value, list) and value else value
    return None


def _modality_of(value: Any, suffixes: Mapping[str, Sequence[str]], modalities: Collection[str]) -> str:
    """The modality whose files are called as a text is; empty where it is no such name."""
    if not isinstance(value, str) or len(value) > _LONGEST or "\n" in value or (" " in value and "/" not in value):
        return ""
    claims = suffixes.get(PurePosixPath(value).suffix.lower(), ())
    return next((modality for modality in claims if modality in modalities), "")


def _is_name(value: Any) -> bool:
    """Whether a value may name a medium: no text of several words, and no yes or no."""
    if isinstance(value, str):
        return bool(value) and len(value) <= _LONGEST and not re.search(r"\s", value.strip())
    return isinstance(value, int | bytes) and not isinstance(value, bool)
