"""Spaces around what is learned that hardly anybody means: behind the commas of a table, in the names of classes."""

from __future__ import annotations

from collections.abc import Iterator

from kosmos.data.sources.delimited import DelimitedTable
from kosmos.data.sources.forms import LIKE_ANSWERS
from kosmos.data.sources.joined import ClassFolderTable, Rooted
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.source import Table
from kosmos.data.spread import spread
from kosmos.errors import SampleError
from kosmos.names import listed

MOST_ROWS, MOST_FILES = 32, 4096
"""Rows, and files in class folders, that are looked at."""


def stray_spaces(layout: Layout, table: Table) -> Iterator[str]:
    """Of columns of which each value begins with a space, and of class folders that begin or end with one."""
    own = table.table if isinstance(table, Rooted) else table
    if isinstance(own, ClassFolderTable) and own.named:
        files = (own.files[row] for row in spread(len(own), MOST_FILES).tolist())
        names = sorted({name for file in files if (name := file.split("/")[-2]) != name.strip()})
        if names:
            yield (
                f"spaces around the names of its folders are learned, so that each is a class of its own: "
                f"{listed(map(repr, names), at_most=4)}; rename them"
            )
    if not isinstance(own, DelimitedTable) or len(own) < 2:
        return
    rows = []
    for index in spread(len(own), MOST_ROWS).tolist():
        try:
            rows.append((index, own.row(index)))
        except SampleError:
            continue
    answers = {*LIKE_ANSWERS, *(layout.columns.get(role) for role in LIKE_ANSWERS)}
    found = []
    for name in sorted({*layout.used(own.names)} - answers):  # of those some mean the space in front
        values = [(index, value) for index, row in rows if isinstance(value := row.get(name), str)]
        begin_so = len(values) > 1 and all(value[:1] == " " for _, value in values)
        if begin_so and not any(own.is_in_quotes(index, value) for index, value in values):
            found.append(name)
    if found:
        yield (
            f"each value of {listed(found)} begins with a space, which is part of it; write none behind what stands "
            "between columns"
        )
