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
MOST_FILES, MOST_LINES, MOST_BYTES = 16, 50, 1 << 16
"""Looked at: files, and of each the first lines."""
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
    known = _Known.of(media.files)
    for name in lists[:MOST_FILES]:
        if (line := _saying(media.folder, name, known)) is not None:
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

    @classmethod
    def of(cls, files: Sequence[str]) -> _Known:
        names = frozenset(name.rpartition("/")[2] for name in files)
        paths = {name.rpartition("/")[0] for name in files}
        folders = frozenset(part for path in paths for part in path.split("/"))
        return cls(names, frozenset(map(stem_of, names)), folders)

    def says_more(self, line: str) -> bool:
        """Whether a line names a medium and says something of it, as a list of files or of figures does not."""
        fields = [field.strip("\"'*") for field in _APART.split(line)]
        more = [field for field in fields if field.rpartition("/")[2] not in self.names]
        if len(more) == len(fields):
            if fields[0] not in self.stems:
                return False
            more = more[1:]
        said = [field for field in more if field not in self.folders and not _FIGURE.fullmatch(field)]
        return any(map(str.isalpha, "".join(said)))


def _saying(folder: Path, name: str, known: _Known) -> str | None:
    """A line that says something of a medium, where more than half of the first lines do."""
    try:
        text = read_bytes(resolve(folder, name), 0, MOST_BYTES).decode(errors="replace")
    except (OSError, SampleError):  # or it is a link to what is elsewhere, and not this folder's
        return None
    lines = [line for line in map(str.strip, text.splitlines()[:MOST_LINES]) if line]
    found = [line for line in lines if known.says_more(line)]
    return found[0] if found and 2 * len(found) > len(lines) - 1 else None  # the first may name columns
