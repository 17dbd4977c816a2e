"""What to write to read a file of one's own by its columns: all of them at once, in a form that can be pasted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import yaml

from kosmos.data.sources import delimited, forms
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.source import Table, columns_of
from kosmos.data.sources.splits import with_meaning
from kosmos.errors import DataError, SampleError

NAMES_FILES = re.compile(r"file|path|name|uri|url", re.IGNORECASE)
"""In the names of columns that say how a medium is named, and not what it is."""


def whole_columns(stated: Mapping[str, str], media: Mapping[str, str], layout: Layout, table: Table) -> dict[str, str]:
    """``columns`` of a table whose media stand in columns that nobody named, with its likely text where that has to be
    named too.

    Args:
        stated: what is named already.
        media: modality to column.
    """
    found = {**with_meaning(stated), **media}
    with suppress(DataError, SampleError, IndexError):
        there = columns_of(table, 0)
        try:
            layout.check(there)
        except DataError:
            found |= likely_roles([name for name in there if name not in found.values()])
    return found


def likely_roles(columns: Collection[str]) -> dict[str, str]:
    """The roles of columns that seem to hold a text, or a question and its answer; none where nothing is likely."""
    if pair := forms.likely_pair(columns):
        return pair
    text = forms.likely(columns, forms.LIKE_TEXTS)
    return {"text": text} if text else {}


def to_paste(path: str | Path, columns: Mapping[str, str]) -> str:
    """``--data '{path: FILE, columns: {text: caption}}'``, which as an entry of ``data.sources`` stands without quotes
    of the shell."""
    place = Path(path)
    with suppress(ValueError):
        place = place.relative_to(Path.cwd())
    entry = {"path": str(place), **({"columns": dict(columns)} if columns else {})}
    flow = yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return f"--data {shlex.quote(flow.strip())}"


def of_list(file: Path, modality: str) -> str:
    """What to paste to learn the rows of a file that lists media, with ``COLUMN`` where nobody can tell which it is."""
    try:
        names = delimited.columns_of(file)
    except (DataError, OSError):
        names = ()
    medium = _medium_of(names, modality)
    left = [name for name in names if name != medium]
    roles = {} if "text" in left else likely_roles(left) or {"text": "COLUMN"}
    return to_paste(file, {**({} if medium == modality else {modality: medium}), **roles})


def _medium_of(names: Collection[str], modality: str) -> str:
    """The column that seems to name media; ``COLUMN`` where none does."""
    files = [name for name in names if NAMES_FILES.search(name)]
    own = [name for name in names if modality in name.lower() and not re.search(r"id$", name, re.IGNORECASE)]
    both = [name for name in own if name in files]
    return next(iter([*both, *own, *files]), "COLUMN")
