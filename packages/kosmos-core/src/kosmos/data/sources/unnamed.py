"""Files that rows name in columns that no role or modality has: media of which nobody has said what they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kosmos.data.sources.columns import Row
from kosmos.data.sources.media import resolve
from kosmos.data.sources.preferences import is_rejected
from kosmos.data.sources.source import Table
from kosmos.data.sources.well_known import WELL_KNOWN, is_medium
from kosmos.errors import SampleError
from kosmos.names import listed


class UnnamedMedia:
    """Finds such columns: without a medium in another, a row with one would pass for a row of plain text.

    Args:
        known: columns that have a meaning.
        suffixes: of files that an installed modality reads.
    """

    _TRIES = 16

    def __init__(self, known: Collection[str], suffixes: Collection[str] = ()) -> None:
        self._known, self._suffixes = frozenset(known), frozenset(suffixes)
        self._found: dict[tuple[frozenset[str], bool], tuple[str, ...]] = {}
        self._tries: Counter[tuple[frozenset[str], bool]] = Counter()
        self.asked: list[tuple[str, str, bool]] = []
        """Folders and names that were looked for there, and whether such a file was there."""
        self.suffixes: dict[str, str] = {}
        """Of the first file of each column that was found."""
        self.not_there: dict[str, str] = {}
        """Columns that name media, of rows without others, where no such file is found: with the first name."""

    def __call__(self, row: Row, table: Table, index: int) -> list[str]:
        """The columns of a row that seems to have no media."""
        return self._columns(row, table, index, beside=False)

    def beside(self, row: Row, table: Table, index: int) -> list[str]:
        """Those of a row with media: of what reads as other media, or of the same files where they are called so."""
        if not (found := self._columns(row, table, index, beside=True)):
            return []
        read = [value for key, value in row.items() if key in self._known]
        return [key for key in found if row[key] not in read or any(name in key.lower() for name in WELL_KNOWN)]

    def _columns(self, row: Row, table: Table, index: int, *, beside: bool) -> list[str]:
        """Rows with the same keys are looked up a few times only. Of media of worse answers the layout tells, except
        where a text is learned."""
        keys = frozenset(row), beside
        if (found := self._found.get(keys)) is not None:
            return [key for key in found if row[key] is not None]
        if self._tries[keys] >= self._TRIES:
            return []
        self._tries[keys] += 1
        unknown = [key for key in row if key not in self._known and ("text" in row or not is_rejected(key))]
        names = {key: name for key in unknown if (name := _file_name(row[key])) is not None}
        media = [key for key, name in names.items() if self._is_medium(name)]
        there = [key for key in (media if beside else names) if self._is_there(names[key], table.root(index))]
        there = [key for key in there if key in media] or there  # beside media other files are none
        for key in there:
            self.suffixes.setdefault(key, PurePosixPath(names[key]).suffix.lower())
        if there:
            self._found[keys] = tuple(there)
        elif not beside:
            for key in unknown:
                name = _named(row[key])
                is_prose = name is None or (" " in name and "/" not in name)
                if name is not None and not is_prose and self._is_medium(name.partition("?")[0]):
                    self.not_there.setdefault(key, name)
        return there

    def _is_there(self, name: str, root: Path) -> bool:
        there = names_file(name, root)
        self.asked.append((str(root), name, there))
        return there

    def _is_medium(self, name: str) -> bool:
        return PurePosixPath(name).suffix.lower() in self._suffixes or is_medium(name)


def _file_name(value: Any) -> str | None:
    """What may be the name of a file: a text, the first of a list, or the path of an object."""
    name = _named(value)
    return None if name is None or "://" in name or not PurePosixPath(name).suffix else name


def _named(value: Any) -> str | None:
    """The same, which may be a web address, or have no suffix."""
    if isinstance(value, list | tuple) and value:
        value = value[0]
    if isinstance(value, Mapping):
        value = value.get("path")
    return value if isinstance(value, str) and len(value) <= 1024 and "\n" not in value else None


def names_file(value: str, root: Path) -> bool:
    """Whether a text names a file below ``root``."""
    try:
        return bool(resolve(root, value))
    except SampleError:
        return False


def warnings_of(source: object) -> Iterator[str]:
    """What is to be said of columns of a source that are not read, beside media that are."""
    name, beside = getattr(source, "name", ""), getattr(source, "beside", {})
    if beside:
        them = "is" if len(beside) == 1 else "are"
        yield (
            f"{name}: its rows name files in {listed(beside)}, which {them} not read, beside media that are; if they "
            f"are meant, {'; '.join(dict.fromkeys(beside.values()))}"
        )
