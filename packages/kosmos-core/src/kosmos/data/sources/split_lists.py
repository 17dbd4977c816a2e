"""Lists of files that lie beside media in class folders and name those to be held out: ``testing_list.txt``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from kosmos.data.open_files import read_bytes
from kosmos.data.sources.chosen import Chosen
from kosmos.data.sources.delimited import SUFFIXES as DELIMITED
from kosmos.data.sources.file_names import stem_of, suffix_of
from kosmos.data.sources.joined import ClassFolderTable, Rooted
from kosmos.data.sources.media import resolve
from kosmos.data.sources.packed import PackedKinds
from kosmos.data.sources.source import Table
from kosmos.data.sources.splits import LIST, Split, split_of
from kosmos.errors import DataError, SampleError
from kosmos.names import listed

MOST_FILES, MOST_BYTES = 16, 16 << 20
"""Looked at: lists, and bytes of each."""
_WORD = re.compile(r"(?<=[a-z])[-_ ]?(?:lists?|files?|sets?|splits?)(?=[\W_\d]|$)", re.IGNORECASE)
_BOUNDS = f"of lists {MOST_FILES} are read, and {MOST_BYTES >> 20} MB of each"


def lists_of(
    folder: Path, files: Sequence[str], placed: Sequence[str]
) -> tuple[PackedKinds[str | None] | None, tuple[str, ...]]:
    """Which list of a split each medium is in, by the name of the list, and the lists that were not read to their end.
    None where no list names any.

    Args:
        files: as ``folders.list_files`` gives them.
        placed: those of them that are media: [rows].
    """
    kinds = (".txt", *DELIMITED)
    lists = [name for name in files if suffix_of(name) in kinds and _split_of_list(stem_of(name)) is not None]
    if not lists:
        return None, ()
    ends = [_end_of(name) for name in placed]
    counts, stems = Counter(ends), Counter(end[1] for end in ends)
    rows = {end: row for row, end in enumerate(ends) if counts[end] == 1}
    rows |= {("", stem): row for row, (_, stem) in enumerate(ends) if stems[stem] == 1}  # named without its folder
    found: list[str | None] = [None] * len(placed)
    cut = lists[MOST_FILES:]
    for name in lists[:MOST_FILES]:
        lines, is_whole = _lines(folder, name)
        if not is_whole:
            cut.append(name)
        for line in lines:
            row = rows.get(_end_of(line), rows.get(_end_of(line.partition(" ")[0])))  # a name may hold spaces
            if row is not None:
                found[row] = found[row] or stem_of(name)
    return PackedKinds(found) if any(found) else None, tuple(cut)


def _split_of_list(stem: str) -> Split | None:
    """As ``split_of``, of a list: between its split and a number there may be a word, as in ``testlist01``."""
    return split_of(_WORD.sub("_", stem, count=1))


def _end_of(name: str) -> tuple[str, str]:
    """The innermost folder of a file and its name without a suffix, which lists may leave out."""
    folder, _, last = name.rpartition("/")
    return folder.rpartition("/")[2], stem_of(last)


def _lines(folder: Path, name: str) -> tuple[Iterator[str], bool]:
    """What the lines of a list name, and whether these are all of them."""
    try:
        data = read_bytes(resolve(folder, name), 0, MOST_BYTES + 1)
    except (OSError, SampleError):  # or it is a link to what is elsewhere, and not this folder's
        return iter(()), True
    is_whole = len(data) <= MOST_BYTES
    lines = (data if is_whole else data.rpartition(b"\n")[0]).decode(errors="replace").splitlines()
    return map(_named_in, lines), is_whole


def _named_in(line: str) -> str:
    return line.strip().partition(",")[0].partition("\t")[0].strip("\"'").replace("\\", "/")


def refuse_cut(table: Table, chosen: Chosen | None) -> None:
    """Raises DataError where rows are held out by a list that was not read to its end: some would be trained on."""
    if not isinstance(table, ClassFolderTable) or chosen is None or chosen.column != LIST:
        return
    wanted = set(map(str, chosen.values))
    if (name := next((name for name in table.lists_cut if stem_of(name) in wanted), None)) is not None:
        raise DataError(
            f"{chosen.field}: {table.folder / name} is not read to its end ({_BOUNDS}), so that media in it would be "
            "trained on; write them into a metadata.csv with a column of their split (file_name,text,split)"
        )


def listed_in_vain(table: Table) -> Iterator[str]:
    """Of media that lists name as held out, in a run that does not go by them."""
    classes = table.table if isinstance(table, Rooted) else table
    if not isinstance(classes, ClassFolderTable):
        return
    if cut := [name for name in classes.lists_cut if _split_of_list(stem_of(name)) == "held_out"]:
        yield f"{listed(cut)} beside the media: not read to the end ({_BOUNDS}); what is named there is trained on"
    if (lists := classes.lists) is None:
        return
    names = sorted(name for name in lists.kinds if name is not None and _split_of_list(name) == "held_out")
    if count := sum(name in names for name in lists):
        them = f"[{', '.join(names)}]" if len(names) > 1 else names[0]
        name = "name" if len(names) > 1 else "names"
        yield (
            f"{listed(names)} beside the media {name} {count} of its {len(lists)} files, "
            "which are trained on as all others are; to hold them out, and no others, set the source's held_out "
            f"({{path: ..., held_out: {{{LIST}: {them}}}}})"
        )
