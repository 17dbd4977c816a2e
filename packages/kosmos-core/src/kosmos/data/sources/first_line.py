"""Tables whose first line is a row already, so that its values stand for the names of columns."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

from kosmos.data.sources import forms
from kosmos.data.sources.delimited import DelimitedTable
from kosmos.data.sources.joined import Rooted
from kosmos.data.sources.layouts import ROLES
from kosmos.data.sources.source import Table
from kosmos.data.sources.unnamed import names_file
from kosmos.data.sources.well_known import WELL_KNOWN
from kosmos.errors import DataError
from kosmos.names import listed, nearest

KNOWN = frozenset((
    *"id name path file filename filepath file_name label class split".split(),
    *forms.LIKE_TEXTS, *forms.LIKE_ASKS, *forms.LIKE_ANSWERS, *ROLES, *WELL_KNOWN,
))  # fmt: skip
"""Names of columns: a line with one of them, or nearly so, is no row."""


def refuse_row_for_names(table: Table, path: str, suffixes: Collection[str]) -> None:
    """Raises DataError where a column is called as a medium of the data is, of a table none of whose rows is of use.

    Args:
        suffixes: of files that an installed modality reads.
    """
    own = table.table if isinstance(table, Rooted) else table
    if not isinstance(own, DelimitedTable) or not len(table) or own.given:
        return
    for name in own.names:
        if PurePosixPath(name).suffix.lower() in suffixes or ("." in name and names_file(name, table.root(0))):
            raise DataError(
                f"{path}: its first line ({listed(own.names, at_most=4):.120}) is to hold the names of the columns, "
                "and looks like a row; write a line with the names above it, or name them (options: {header: [...]})"
            )


def told_of_names(columns: Collection[str], said: str) -> str:
    """What may be wrong with the first line of a table of which a column is missing, behind what was said of that.

    Args:
        columns: what stands there for the names.
    """
    told = []
    if any("|" in column for column in columns):
        letter = "What stands between columns is a comma, a semicolon or a tab, and | is a letter"
        told.append(f"{letter}, unless it is named (options: {{delimiter: '|'}})")
    if not any(nearest(column, KNOWN) for column in columns):
        row = "If the first line of the file is a row already, write a line with the names of columns above it"
        told.append(f"{row}, or name them (options: {{header: [...]}})")
    between = " " if said.endswith("?") else ". "
    return f"{between}{'. '.join(told)}" if told else ""
