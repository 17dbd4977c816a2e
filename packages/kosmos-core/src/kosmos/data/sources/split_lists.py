"""Lists of files that lie beside media in class folders and name those to be held out: ``testing_list.txt``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from kosmos.data.open_files import read_bytes
from kosmos.data.sources.delimited import SUFFIXES as DELIMITED
from kosmos.data.sources.file_names import stem_of, suffix_of
from kosmos.data.sources.joined import LIST, ClassFolderTable, Rooted
from kosmos.data.sources.media import resolve
from kosmos.data.sources.packed import PackedKinds
from kosmos.data.sources.source import Table
from kosmos.data.sources.splits import split_of
from kosmos.errors import SampleError
from kosmos.names import listed

MOST_FILES, MOST_BYTES = 16, 16 << 20
"""Looked at: lists, and bytes of each."""


def lists_of(folder: Path, files: Sequence[str], placed: Sequence[str]) -> PackedKinds[str | None] | None:
    """Which list of a split each medium is in, by the name of the list; None where there are none.

    Args:
        files: as ``folders.list_files`` gives them.
        placed: those of them that are media: [rows].
    """
    kinds = (".txt", *DELIMITED)
    lists = [name for name in files if suffix_of(name) in kinds and split_of(stem_of(name)) is not None]
    if not lists:
        return None
    ends = [_end_of(name) for name in placed]
    counts, stems = Counter(ends), Counter(end[1] for end in ends)
    rows = {end: row for row, end in enumerate(ends) if counts[end] == 1}
    rows |= {("", stem): row for row, (_, stem) in enumerate(ends) if stems[stem] == 1}  # named without its folder
    found: list[str | None] = [None] * len(placed)
    for name in lists[:MOST_FILES]:
        for line in _lines(folder, name):
            row = rows.get(_end_of(line), rows.get(_end_of(line.partition(" ")[0])))  # a name may hold spaces
            if row is not None:
                found[row] = found[row] or stem_of(name)
    return PackedKinds(found) if any(found) else None


def _end_of(name: str) -> tuple[str, str]:
    """The innermost folder of a file and its name without a suffix, which lists may leave out."""
    folder, _, last = name.rpartition("/")
    return folder.rpartition("/")[2], stem_of(last)


def _lines(folder: Path, name: str) -> Iterator[str]:
    try:
        text = read_bytes(resolve(folder, name), 0, MOST_BYTES).decode(errors="replace")
    except (OSError, SampleError):  # or it is a link to what is elsewhere, and not this folder's
        return
    for line in text.splitlines():
        yield line.strip().partition(",")[0].partition("\t")[0].strip("\"'").replace("\\", "/")


def listed_in_vain(table: Table) -> Iterator[str]:
    """Of media that lists name as held out, in a run that does not go by them."""
    classes = table.table if isinstance(table, Rooted) else table
    lists = classes.lists if isinstance(classes, ClassFolderTable) else None
    if lists is None:
        return
    names = sorted(name for name in lists.kinds if name is not None and split_of(name) == "held_out")
    if count := sum(name in names for name in lists):
        them = f"[{', '.join(names)}]" if len(names) > 1 else names[0]
        name = "name" if len(names) > 1 else "names"
        yield (
            f"{listed(names)} beside the media {name} {count} of its {len(lists)} files, "
            "which are trained on as all others are; to hold them out, and no others, set the source's held_out "
            f"({{path: ..., held_out: {{{LIST}: {them}}}}})"
        )
