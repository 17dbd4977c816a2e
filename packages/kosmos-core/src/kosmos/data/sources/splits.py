"""Which rows are trained on and which are held out: by the data's own split, or by a hash of each row."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kosmos.data.sources.columns import look_up, top_column
from kosmos.data.sources.file_names import stem_of
from kosmos.data.unpacked import is_packed, without_packing
from kosmos.errors import DataError, SampleError

Split = Literal["train", "held_out"]

MAX_HELD_OUT = 512
"""Most rows that are held out where the data has no split of its own."""

GROUP = "group"
"""What ``columns`` may name: rows that have the same there are trained on together, or held out together."""
CHOSEN = "held out"
"""Beside the roles of ``columns``: where the values are by which rows are held out (``kosmos.data.sources.chosen``)."""
KEPT = "rows"
"""Likewise: where the values are of the rows that are read, where not all are."""
LIST = "list"
"""In place of a column, of files in class folders: which list names them."""
_KEYS = (GROUP, CHOSEN, KEPT)
"""What gives its column no meaning in documents."""


def split_roles(columns: Mapping[str, str]) -> list[str]:
    """Roles of the columns that say in which part a row is; a group is one only where ``columns`` names it."""
    return ["id", "split", *(role for role in columns if role in _KEYS)]


def field_of(role: str) -> str:
    """How messages call the field that names the column of a role."""
    return {CHOSEN: "held_out", KEPT: "rows"}.get(role) or f"columns.{role}"


def advice_on(role: str, path: str) -> str:
    """How a message ends that says that the column of a role is not there; empty where nothing is to be said."""
    if role != CHOSEN or path != LIST:
        return ""
    return "; a list is a .txt, .csv or .tsv file beside media in class folders, is called by a split and names them"


def with_meaning(columns: Mapping[str, str]) -> dict[str, str]:
    """``columns`` without the group and the like, which are keys and give their columns no meaning in documents."""
    return {role: path for role, path in columns.items() if role not in _KEYS}


def check_group(columns: Mapping[str, str], there: Collection[str], plain: Collection[str]) -> None:
    """Raises DataError where a group, or the like, stands in a column of a table that costs much to read.

    Args:
        plain: those of no bytes, lists or objects.
    """
    for role in _KEYS:
        top = top_column(columns[role], there) if role in columns else None
        if top in there and top not in plain:
            raise DataError(
                f"{field_of(role)}: {top!r} holds objects, lists or bytes, all of which would be read; write what "
                "tells the groups apart into a column of its own"
            )


def group_hash(group: Any) -> int:
    """The hash of a group, as ``said_of`` tells it. 1, 1.0 and "1" are the same."""
    return row_hash(f"group {group}")


def said_of(row: Mapping[str, Any], path: str, *, strips: bool = True) -> Any:
    """What a row says at a path, as a plain value; None where it says nothing, such as by an empty text.

    Args:
        strips: whether spaces around a text are none of it.
    """
    try:
        group = look_up(row, path)
    except SampleError:  # such as a nested one that this row lacks
        return None
    if strips and isinstance(group, str):
        group = group.strip()
    if group is None or group == "" or group != group:  # not a number is not itself
        return None
    if isinstance(group, dict | list):
        group = json.dumps(group, sort_keys=True, default=str)
    elif isinstance(group, float) and group.is_integer():
        group = int(group)
    return group


_OF_SHARD = re.compile(r"[-_.]((?:train|training|test|val|valid|validation|dev|eval)[-._]\d+-of-\d+)")
_TRAIN = re.compile(r"(train|training)([\W_].*|\d*)", re.IGNORECASE | re.DOTALL)
_HELD_OUT = re.compile(
    r"(test|testing|testdev|test[ab]|val|valid|validation|dev|devel|eval|evaluation|held[-_ ]?out|holdout)"
    r"([\W_].*|\d*)",
    re.IGNORECASE | re.DOTALL,
)


def split_of(name: Any) -> Split | None:
    """The part that a split's name means: ``train.clean.100`` is train, ``validation`` is held out, else None."""
    if not isinstance(name, str):
        return None
    if _TRAIN.fullmatch(name.strip()):
        return "train"
    return "held_out" if _HELD_OUT.fullmatch(name.strip()) else None


def of_folders(said: Sequence[Split | None]) -> list[Split | None]:
    """Splits by what the names of folders say of each file.

    A folder may be called ``test`` for what it holds. So they count where each file is in such a folder, or where there
    are both, those to train on and those held out; what is in neither is trained on.
    """
    meant = None not in said or {"train", "held_out"} <= set(said)
    return list(said) if meant else [None] * len(said)


def splits_of_files(files: Sequence[str]) -> list[Split | None]:
    """What each file's outermost folder or name says about its split, such as ``train-00000-of-00002.parquet``."""
    of_folder = cache(_split_of_folder)
    return [
        of_folder(folder) or split_of(stem_of(last)) for folder, _, last in (name.rpartition("/") for name in files)
    ]


def splits_of_data(files: Sequence[str]) -> list[Split | None]:
    """As ``splits_of_files``, of files of rows: a file's own name counts whatever others are called.

    A single file is what was asked for, whatever it is called. Of compressed ones the split may stand behind a name, as
    in ``c4-train.00000-of-01024.json.gz``; of others it never did, and runs go by it.
    """
    if len(files) < 2:
        return [None] * len(files)
    files = [_of_shard(without_packing(name)) if is_packed(name) else name for name in files]
    said = splits_of_files(files)
    by_name = "held_out" in (split_of(stem_of(name.rpartition("/")[2])) for name in files)
    return said if by_name else of_folders(said)


def _of_shard(name: str) -> str:
    """The path of a shard, without what stands in front of its split."""
    folder, slash, last = name.rpartition("/")
    found = _OF_SHARD.search(last)
    return name if found is None else f"{folder}{slash}{last[found.start(1) :]}"


def _split_of_folder(folder: str) -> Split | None:
    return next(filter(None, map(split_of, folder.split("/"))), None)


def row_hash(key: str) -> int:
    """64 bits of a row's id or position, the same on every machine."""
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def hash_of_place(index: int) -> int:
    """``row_hash`` of a row without an id, by its number in its table."""
    return row_hash(f"row {index}")


def num_held_out(rows: int, share: float) -> int:
    """How many of ``rows`` rows are held out: ``round(rows * share)``, at least 1 of 2 or more, at most 512.

    None are where ``share`` is 0.
    """
    if not 0 <= share < 1:
        raise DataError(f"held_out: expected a share from 0 to below 1, got {share}")
    if rows < 2 or share == 0:
        return 0
    return min(max(round(rows * share), 1), MAX_HELD_OUT, rows - 1)


def held_out_rows(hashes: NDArray[np.uint64], share: float, *, together: bool = False) -> NDArray[np.bool_]:
    """Which rows are held out: those with the smallest hashes; of equal ones the first.

    Args:
        hashes: ``row_hash`` of each row's id or position: [rows].
        share: of the rows, from 0 to below 1.
        together: equal ones are one group. Groups are taken by their hashes as long as they fit, one that does not is
            passed over, and where none fits it is the smallest, but for the only one.

    Returns:
        bool [rows].
    """
    count = num_held_out(len(hashes), share)
    if not count:
        return np.zeros(len(hashes), dtype=np.bool_)
    if together:
        return np.isin(hashes, _groups(hashes, count))
    largest = np.partition(hashes, count - 1)[count - 1]  # of the chosen; sorting all takes ten times as long
    chosen: NDArray[np.bool_] = hashes < largest
    chosen[np.flatnonzero(hashes == largest)[: count - np.count_nonzero(chosen)]] = True
    return chosen


def _groups(hashes: NDArray[np.uint64], count: int) -> list[int]:
    """Hashes of groups that come to ``count`` rows at most, or of the smallest."""
    groups, sizes = np.unique(hashes, return_counts=True)
    if len(groups) < 2:
        return []
    chosen, left = [], count
    for group, size in zip(groups.tolist(), sizes.tolist(), strict=True):
        if size <= left:
            chosen.append(group)
            left -= size
        if not left:
            break
    return chosen or [int(groups[sizes.argmin()])]
