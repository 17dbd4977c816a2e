"""What a folder holds, by what is in it: a manifest, data files of one kind, or media in class folders."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from kosmos.data.sources.columns import Row
from kosmos.data.sources.joined import ClassFolderTable, JoinedTable
from kosmos.data.sources.jsonl import index_jsonl
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.data.sources.media import resolve
from kosmos.data.sources.source import Table
from kosmos.data.sources.splits import Split, split_of
from kosmos.data.sources.textfiles import index_text
from kosmos.errors import DataError, SampleError

MANIFEST = "manifest.jsonl"
NO_SUFFIX = "no suffix"
"""What files without one are counted under."""

_NOT_DATA = ("readme", "license", "licence", "notice", "changelog", "credits", "requirements")


def list_files(folder: Path) -> list[str]:
    """Paths of the files below a folder, sorted, ``/`` between their parts; hidden ones and linked folders left out.

    Raises:
        DataError: the folder cannot be read.
    """
    found = []
    for here, folders, files in os.walk(folder, onerror=_cannot_list):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        base = Path(here).relative_to(folder)
        found += [(base / name).as_posix() for name in files if not name.startswith(".")]
    return sorted(found)


def _cannot_list(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error


def open_manifest(path: Path, layout: DefaultLayout, left_out: Counter[str], chunk_chars: int) -> Table:
    """A manifest's rows; those with a text ``file`` give the documents of that file.

    Args:
        left_out: gets the rows whose ``file`` is no text file, by its suffix.
    """
    table = index_jsonl([path])
    keep = np.ones(len(table), np.bool_)
    files: list[Path] = []
    splits: list[Split | None] = []
    for index, row in enumerate(table.scan(layout)):
        if isinstance(row, SampleError) or not isinstance(name := row.get("file"), str) or layout.media_of(row):
            continue
        suffix = PurePosixPath(name).suffix.lower()
        if suffix == ".txt":
            try:
                files.append(resolve(path.parent, name))
            except SampleError:
                continue  # stays among the rows, and says what is wrong when it is drawn
            splits.append(split_of(row.get("split")))
        else:
            left_out[suffix or NO_SUFFIX] += 1
        keep[index] = False
    rows = table.only(keep)
    return JoinedTable([rows, index_text(files, splits, chunk_chars)]) if files else rows


def class_folders(
    folder: Path, files: Sequence[str], suffixes: Mapping[str, str], left_out: Counter[str]
) -> ClassFolderTable | None:
    """Files in class folders as a table, or None where no file of a known suffix is in a folder.

    Args:
        files: as ``list_files`` gives them.
        suffixes: suffix to modality.
        left_out: gets the files of unknown suffixes, by suffix.
    """
    placed = [name for name in files if "/" in name and PurePosixPath(name).suffix.lower() in suffixes]
    if not placed:
        return None
    for name in set(files) - set(placed):
        left_out[PurePosixPath(name).suffix.lower() or NO_SUFFIX] += 1
    splits = splits_of_files([n for n in placed if n.count("/") > 1])
    if len(splits) < len(placed) or None in splits:
        splits = [None] * len(placed)
    modalities = [suffixes[PurePosixPath(name).suffix.lower()] for name in placed]
    return ClassFolderTable(folder, tuple(placed), tuple(modalities), tuple(splits))


def splits_of_files(files: Sequence[str]) -> list[Split | None]:
    """What each file's outermost folder or name says about its split, such as ``train-00000-of-00002.parquet``."""
    return [_split_of_file(PurePosixPath(name)) for name in files]


def _split_of_file(path: PurePosixPath) -> Split | None:
    return next((s for part in (*path.parts[:-1], path.stem) if (s := split_of(part)) is not None), None)


def data_files(folder: Path, files: Sequence[str]) -> tuple[str, list[str]] | None:
    """The data files of a folder: their suffix and paths; None where there are none.

    Raises:
        DataError: files of several kinds, so that nobody can say which are meant.
    """
    kinds: dict[str, list[str]] = {}
    for name in files:
        path = PurePosixPath(name)
        if path.suffix.lower() in (".jsonl", ".parquet", ".txt") and not path.stem.lower().startswith(_NOT_DATA):
            kinds.setdefault(path.suffix.lower(), []).append(name)
    if len(kinds) > 1:
        counts = ", ".join(f"{len(names)} {suffix}" for suffix, names in sorted(kinds.items()))
        raise DataError(f"{folder}: holds data files of several kinds ({counts}); name a file or a folder of one kind")
    return next(iter(kinds.items()), None)


class ForeignMedia:
    """Finds rows with a medium of a modality that nobody has installed, which would pass for rows of plain text.

    Such a row has a key that no role or modality has, and its value names a file that is there.
    """

    _TRIES = 16

    def __init__(self, known: Collection[str]) -> None:
        self._known = frozenset(known)
        self._found: dict[frozenset[str], str] = {}
        self._tries: Counter[frozenset[str]] = Counter()

    def __call__(self, row: Row, table: Table, index: int) -> str | None:
        """The key of the foreign medium. Rows with the same keys are looked up a few times only."""
        keys = frozenset(row)
        if (key := self._found.get(keys)) is not None:
            return key if row[key] is not None else None
        if self._tries[keys] >= self._TRIES:
            return None
        self._tries[keys] += 1
        for key in row:
            if key not in self._known and _names_file(row[key], table.root(index)):
                self._found[keys] = key
                return key
        return None


def _names_file(value: Any, root: Path) -> bool:
    if not isinstance(value, str) or len(value) > 1024 or not PurePosixPath(value).suffix:
        return False
    try:
        return bool(resolve(root, value))
    except SampleError:
        return False


def suffix_table(specs: Mapping[str, Any], modalities: Sequence[str]) -> dict[str, str]:
    """Suffix to modality. Where several claim one, a modality that was asked for goes first."""
    order = [*modalities, *(name for name in specs if name not in modalities)]
    return {suffix: name for name in reversed(order) if name in specs for suffix in specs[name].suffixes}
