"""Files that list media and what is said in them, in ways of their own, beside media in class folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kosmos.data.open_files import read_bytes
from kosmos.data.sources.delimited import SUFFIXES as DELIMITED
from kosmos.data.sources.file_names import stem_of, suffix_of
from kosmos.data.sources.folders import tells_of_data
from kosmos.data.sources.joined import ClassFolderTable
from kosmos.data.sources.media import resolve
from kosmos.errors import DataError, SampleError

KINDS = (".txt", *DELIMITED)
MOST_FILES, MOST_LINES = 256, 50
"""Looked at: files, and the first lines of each."""
LEAST_BYTES, MOST_BYTES, BYTES_OF_ALL = 1 << 16, 4 << 20, 16 << 20
"""Looked at further: of each file, and of all of them."""
LEAST_DIGITS = 4
"""Of a name that is digits alone: fewer may be the number of a class."""
_FIGURE = re.compile(r"[-+]?[\d.]+([eE][-+]?\d+)?|[0-9a-fA-F]{32,}|nan|NaN")
"""A number, or a digest."""
_APART = re.compile(r"[,;|\t ]")


def refuse_index_beside(media: ClassFolderTable, files: Sequence[str]) -> None:
    """Raises DataError where a file says something of media in class folders: their texts are there, most likely.

    Args:
        files: as ``folders.list_files`` gives them.
    """
    lists = [name for name in files if suffix_of(name) in KINDS and not tells_of_data(name)]
    if not lists:
        return
    known, told, left = _Known.of(media.files), set[str](), BYTES_OF_ALL
    for name in lists[:MOST_FILES]:
        lines = _first_lines(media.folder, name, max(LEAST_BYTES, min(left, MOST_BYTES)))
        left -= sum(map(len, lines))
        if (line := _saying(name, lines, known, told)) is not None:
            raise DataError(
                f"{media.folder}: {name} lists media that lie in folders ({' '.join(line.split()):.60}), so that their "
                "texts seem to be there; to learn these write them into a metadata.csv (file_name,text) or a "
                f"manifest.jsonl, to learn the names of the folders (such as {media.files[0]}) move {name} elsewhere"
            )


@dataclass(frozen=True)
class _Known:
    """What a line may say that is no text of a medium."""

    names: frozenset[str]
    stems: frozenset[str]
    folders: frozenset[str]
    suffixes: frozenset[str]
    one_class: bool
    """Whether all media lie in one folder, whose name is all that they would teach."""

    @classmethod
    def of(cls, files: Sequence[str]) -> _Known:
        names = frozenset(name.rpartition("/")[2] for name in files)
        paths = {name.rpartition("/")[0] for name in files}
        folders = frozenset(part for path in paths for part in path.split("/"))
        return cls(names, frozenset(map(stem_of, names)), folders, frozenset(map(suffix_of, names)), len(paths) == 1)

    def named_by(self, fields: Sequence[str]) -> str | None:
        """The medium that a line names: a file anywhere, or its name without a suffix in front."""
        for field in fields:
            if (last := field.rpartition("/")[2]) in self.names:
                return stem_of(last)
        return fields[0] if fields[0] in self.stems else None

    def says_more(self, fields: Sequence[str]) -> bool:
        """Whether a line names a medium and says something of it, as a list of files or of figures does not."""
        return self.named_by(fields) is not None and self._is_more(fields)

    def says_more_of_absent(self, fields: Sequence[str]) -> bool:
        """As ``says_more``, of any file whose suffix media have."""
        return any(suffix_of(field) in self.suffixes for field in fields) and self._is_more(fields)

    def _is_more(self, fields: Sequence[str]) -> bool:
        more = [field for field in fields if suffix_of(field) not in self.suffixes]
        more = more if len(more) < len(fields) else more[1:]
        said = [field for field in more if field not in self.folders and not _FIGURE.fullmatch(field)]
        return any(map(str.isalpha, "".join(said)))


def _first_lines(folder: Path, name: str, most_bytes: int) -> list[str]:
    try:
        text = read_bytes(resolve(folder, name), 0, most_bytes).decode(errors="replace")
    except (OSError, SampleError):  # or it is a link to what is elsewhere, and not this folder's
        return []
    return [line for line in map(str.strip, text.splitlines()) if line]


def _saying(name: str, lines: Sequence[str], known: _Known, told: set[str]) -> str | None:
    """A line that says something of a medium, where a list is of media, be it of many that are not there.

    Args:
        told: media of which the files before said something; gets those of this one.
    """
    first = list(map(_fields, lines[:MOST_LINES]))
    says = known.says_more_of_absent if known.one_class else known.says_more
    found = [number for number, fields in enumerate(first) if says(fields) or known.says_more(fields)]
    if found and 2 * len(found) > len(first) - 1:  # the first may name columns
        return lines[found[0]]
    # Of a set of which a part was fetched the list may be whole. Prose may name one file, and a table of rows does not.
    enough = 1 if suffix_of(name) in DELIMITED else min(2, len(known.names))
    for line in lines:
        fields = _fields(line)
        medium = known.named_by(fields)
        if medium is None or medium in told or (medium.isdecimal() and len(medium) < LEAST_DIGITS):
            continue
        if known.says_more(fields):
            told.add(medium)
            if len(told) >= enough:
                return line
    return None


def _fields(line: str) -> list[str]:
    return [field.strip("\"'*") for field in _APART.split(line)]
