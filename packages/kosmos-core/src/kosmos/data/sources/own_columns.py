"""What to write to read a file of one's own by its columns: all of them at once, in a form that can be pasted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from kosmos.data.sources import forms
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


def to_paste(path: str | Path, columns: Mapping[str, str | list[str]], root: Path | None = None) -> str:
    """``--data '{path: FILE, columns: {text: caption}}'``, which as an entry of ``data.sources`` stands without quotes
    of the shell.

    Args:
        root: the folder of the media, where that is to be named.
    """
    entry: dict[str, Any] = {"path": _from_here(path)}
    if root is not None:
        entry["root"] = _from_here(root)
    if columns:
        entry["columns"] = dict(columns)
    flow = yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return f"--data {shlex.quote(flow.strip())}"


def _from_here(path: str | Path) -> str:
    place = Path(path)
    with suppress(ValueError):
        place = place.relative_to(Path.cwd())
    return str(place)


def add_modalities(modalities: Sequence[str]) -> str:
    """What to do about modalities that the run has not."""
    return f"this needs a run with {', '.join(modalities)} among its --modalities"
