"""What to write to learn the rows of a file that lists the media of a folder, with the folder that these are in."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kosmos.data.sources import delimited
from kosmos.data.sources.columns import Row
from kosmos.data.sources.file_names import rows_suffix, stem_of, suffix_of
from kosmos.data.sources.joined import ClassFolderTable
from kosmos.data.sources.json_list import index_json
from kosmos.data.sources.jsonl import JsonlTable
from kosmos.data.sources.own_columns import NAMES_FILES, likely_roles, to_paste
from kosmos.data.sources.splits import split_of
from kosmos.data.spread import spread
from kosmos.errors import DataError, SampleError

MOST_ROWS = 64
"""From all over a file, by which one tells the column of the media."""
LABELS = ("category", "label", "labels", "tags", "class", "class_name")
"""Columns that are learned where no other is a text."""


class _Found(NamedTuple):
    """Where the rows of a list name media."""

    column: str
    root: str | None
    """The folder that the names are below, itself below that of the media; None where no one folder is."""


def as_rows(media: ClassFolderTable, files: Sequence[str], name: str) -> str:
    """How the rows of a list of media are read themselves, as the beginning of an advice; empty where they are not.

    Args:
        files: as ``folders.list_files`` gives them.
        name: of the list.
    """
    rows = _rows(media.folder / name)
    if not rows:
        return ""
    by_name = _by_name(media.files)
    if any(map(by_name.get, map(_last, rows[0]))):  # the first line names no columns: it is a row
        return ""
    found = _column_of(rows, by_name)
    if found is None and (len(rows[0]) == 1 or rows_suffix(name) not in delimited.SUFFIXES):
        return ""
    modality, root = media.modalities[0], None
    if found is not None:
        if found.root is None:
            return ""
        root = above if (above := media.folder / found.root) != (media.folder / name).parent else None
    columns = {modality: found.column if found is not None else ""}
    shown = to_paste(media.folder / _with_splits(media.folder, files, name), _named(rows, columns), root)
    return f"name that file and its columns ({shown}), or "


def of_list(file: Path, modality: str) -> str:
    """What to paste to learn the rows of a file that lists media, with ``COLUMN`` where nobody can tell which it is."""
    return to_paste(file, _named(_rows(file), {modality: ""}))


def _named(rows: Sequence[Row], media: Mapping[str, str]) -> dict[str, str]:
    """``columns``, with what seems to be a text.

    Args:
        media: modality to column, empty where it is to be told by its name.
    """
    names = [*rows[0]] if rows else []
    ((modality, column),) = media.items()
    column = column or _medium_of(names, modality)
    left = [name for name in names if name != column]
    labels = [
        n for n in LABELS if n in left and any(map(str.isalpha, "".join(str(row.get(n)) for row in rows if row.get(n))))
    ]
    roles = {} if "text" in left else likely_roles(left) or {"text": next(iter(labels), "COLUMN")}
    return {**({} if column == modality else {modality: column}), **roles}


def _has_words(rows: Sequence[Row], column: str) -> bool:
    return any(str.isalpha(letter) for row in rows for letter in str(row.get(column) or ""))


def _medium_of(names: Collection[str], modality: str) -> str:
    """The column that seems to name media; ``COLUMN`` where none does."""
    files = [name for name in names if NAMES_FILES.search(name)]
    own = [name for name in names if modality in name.lower() and not re.search(r"id$", name, re.IGNORECASE)]
    both = [name for name in own if name in files]
    return next(iter([*both, *own, *files]), "COLUMN")


def _rows(file: Path) -> list[Row]:
    """Rows from all over a file of rows; none where it is none, or has no columns. They say no more than the names of
    the columns where none can be read."""
    rows: list[Row] = []
    names: tuple[str, ...] = ()
    with suppress(DataError, SampleError, OSError):
        table: JsonlTable
        if rows_suffix(file.name) in delimited.SUFFIXES:
            names = delimited.columns_of(file)
            table = delimited.index_delimited(file)
        elif rows_suffix(file.name) in (".json", ".jsonl"):
            table = index_json(file)
        else:
            return []
        for index in spread(len(table), MOST_ROWS).tolist():
            with suppress(SampleError):
                rows.append(table.row(index))
    return rows or ([dict.fromkeys(names)] if names else [])


def _by_name(media: Sequence[str]) -> dict[str, list[str]]:
    """Media by the last parts of their names, and by these without a suffix."""
    found = defaultdict[str, list[str]](list)
    for name in media:
        for key in {stem_of(name), _last(name)}:
            found[key].append(name)
    return dict(found)


def _last(name: Any) -> str:
    return name.rpartition("/")[2] if isinstance(name, str) else ""


def _column_of(rows: Sequence[Row], by_name: Mapping[str, Sequence[str]]) -> _Found | None:
    """The column that names most media in as many rows as no other does, of which that with suffixes goes first."""
    best, most = None, (0, False)
    for column in rows[0]:
        values = [value for row in rows if isinstance(value := row.get(column), str) and _last(value) in by_name]
        counted = (len(values), bool(values) and bool(suffix_of(values[0])))
        if counted > most:
            roots = {root for value in values for root in _roots_of(value, by_name[_last(value)])}
            best, most = _Found(column, roots.pop() if len(roots) == 1 else None), counted
    return best


def _roots_of(value: str, media: Sequence[str]) -> set[str | None]:
    """The folders above the media to which a row may add ``value``; None where that would be no medium, or one of
    several."""
    paths = [medium if suffix_of(value) else medium[: len(medium) - len(suffix_of(medium))] for medium in media]
    fit = [path for path in paths if path == value or path.endswith(f"/{value}")]
    return {fit[0][: -len(value)].rstrip("/") if len(fit) == 1 else None}


def _with_splits(folder: Path, files: Sequence[str], name: str) -> str:
    """The list, or with those of other splits beside it the pattern of them all, or that which is trained on."""
    base, last = name.rpartition("/")[0], name.rpartition("/")[2]
    suffix = suffix_of(last)
    if split_of(stem_of(last)) is None or suffix not in delimited.SUFFIXES:
        return name
    own, stems = _columns(folder / name), []
    for other in files:
        stem = stem_of(other)
        if other.rpartition("/")[0] == base and suffix_of(other) == suffix and split_of(stem) is not None:
            stems += [stem] if _columns(folder / other) == own else []
    train = [stem for stem in stems if split_of(stem) == "train"]
    if not train or any(re.search(r"[{},*?\[\]]", stem) for stem in stems):
        return name
    others = [stem for stem in stems if stem not in train]
    written = f"{{{','.join([*train, *others])}}}" if others or len(train) > 1 else train[0]
    return f"{base}/{written}{suffix}" if base else f"{written}{suffix}"


def _columns(file: Path) -> tuple[str, ...]:
    with suppress(DataError, OSError):
        return delimited.columns_of(file)
    return ()
