"""Splits that data state where nobody goes by them: in a column of another name, or in names of folders and files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from kosmos.data.sources.choices import ChoiceLayout
from kosmos.data.sources.columns import is_empty
from kosmos.data.sources.file_names import stem_of
from kosmos.data.sources.joined import ClassFolderTable, JoinedTable, Rooted
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.pairs import PairTable
from kosmos.data.sources.source import Table, columns_of, row_with
from kosmos.data.sources.splits import Split, split_of
from kosmos.data.spread import spread
from kosmos.errors import DataError, SampleError

MOST_ROWS, MOST_OF_BLOCKS = 128, 8
"""Rows that are looked at, and those of a table that reads many to get one."""
MOST_FILES = 4096
"""Files whose folders are looked at."""
MOST_WORDS = 8
"""Different words in a column of splits."""
_NAMES = frozenset("split splits set subset partition fold phase usage".split())
_HELD_OUT = "test|testing|val|valid|validation|dev|devel|development|eval|evaluation|held[-_ ]?out|holdout"
_PARTS = {
    kind: re.compile(rf"(?:(.*?)[\W_])??(?:{stem})(?:(?:sub|data)?sets?|data|split)?((?:[\d\W_].*)?)", re.I | re.S)
    for kind, stem in (("train", "train|training"), ("held_out", _HELD_OUT))
}
"""What stands in front of the word of a split, and behind it: ``trainset``, ``train2017``, ``flowers_train``."""
_BEHIND = re.compile(
    r"[a-z]|\w*\d\w*|sets?|subset|data(set)?|split|part|fold|clean|other|small|large|mini|full|all|new"
)
"""Words behind it that are no part of a name of something else (``train_stations``)."""


def splits_in_vain(layout: Layout, table: Table) -> Iterator[str]:
    """Of rows of which a column without a meaning says whether they are to be trained on."""
    if isinstance(layout, ChoiceLayout) or not len(table):
        return
    is_dear = table.row_blocks() is not None
    rows = sorted({*spread(len(table), MOST_OF_BLOCKS if is_dear else MOST_ROWS).tolist(), len(table) - 1})
    try:
        columns = columns_of(table, rows[0])
        unread = [name for name in columns if isinstance(name, str) and name not in layout.used(columns)]
        for name in sorted(unread, key=lambda name: name.casefold() not in _NAMES):
            is_called_so = name.casefold() in _NAMES
            if is_called_so or (not is_dear and _is_word(row_with(table, rows[0], name).get(name))):
                words = _words(table, rows, name)
                if {split_of(word) for word in words} == {"train", "held_out"}:
                    yield (
                        f"its rows have {name}, which says {' and '.join(words[:2])} and is not gone by: rows of both "
                        f"are treated alike; if it is the split, name the column (columns: {{split: {name}}})"
                    )
                    return
    except (DataError, SampleError):
        return


def _words(table: Table, rows: Iterable[int], name: str) -> list[str]:
    """The words of a column, those of both parts first; none where it holds something else."""
    found: dict[str, None] = {}
    for index in rows:
        try:
            value: Any = row_with(table, index, name).get(name)
        except SampleError:  # the row is bad, or lacks the column
            continue
        if is_empty(value):
            continue
        if not _is_word(value) or len(found) > MOST_WORDS:
            return []
        found[value.strip()] = None
    first: dict[Split | None, str] = {}
    for word in found:
        first.setdefault(split_of(word), word)
    return [*dict.fromkeys((*(first[part] for part in ("train", "held_out") if part in first), *found))]


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and not re.search(r"\s", value.strip()) and split_of(value) is not None


def folders_in_vain(table: Table) -> Iterator[str]:
    """Of files in folders, or of data files, that are called nearly as splits are: ``trainset`` and ``testset``."""
    own = table.table if isinstance(table, Rooted) else table
    if isinstance(own, ClassFolderTable | PairTable):
        if any(split is not None for split in own.splits.kinds):
            return
        files, above = (
            (own.texts, -1) if isinstance(own, PairTable) else (own.files, -2)
        )  # of classes the names are texts
        levels = [files[row].split("/")[:above] for row in spread(len(own), MOST_FILES).tolist()]
    elif isinstance(own, JoinedTable):
        if any(split is not None for split in own.splits):
            return
        paths = [name for name, _ in own.holds()]
        shared = _shared_folders(paths)
        levels = [[*parts[shared:-1], stem_of(parts[-1])] for parts in (path.split("/") for path in paths)]
    else:
        return
    for names_of_level in zip(*(level[: min(map(len, levels))] for level in levels), strict=True):
        names = sorted(set(names_of_level))
        if (both := _both(names)) is not None:
            train, held_out = both
            yield (
                f"{train} and {held_out} are no names of splits that are known, so that what is in them is treated "
                "alike; if they are splits, rename them train and test, or name one as what is trained on and the "
                "other in evaluate.sources"
            )
            return


def _both(names: Sequence[str]) -> tuple[str, str] | None:
    """The first two names of which one is nearly that of what is trained on, and the other of what is held out."""
    parts = {
        kind: {name: match.groups(default="") for name in names if (match := part.fullmatch(name.casefold()))}
        for kind, part in _PARTS.items()
    }
    for train, (before, behind) in parts["train"].items():
        for held_out, (other_before, other_behind) in parts["held_out"].items():
            if before == other_before and (
                behind == other_behind or (_says_little(behind) and _says_little(other_behind))
            ):
                return train, held_out
    return None


def _says_little(behind: str) -> bool:
    return all(_BEHIND.fullmatch(word) for word in re.split(r"[\W_]+", behind) if word)


def _shared_folders(names: Collection[str]) -> int:
    """How many folders all paths begin with."""
    folders = [name.split("/")[:-1] for name in names]
    count = 0
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        count += 1
    return count
