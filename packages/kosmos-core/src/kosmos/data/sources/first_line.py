"""Tables whose first line is a row already, so that its values stand for the names of columns."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

from kosmos.data.sources.delimited import DelimitedTable
from kosmos.data.sources.joined import Rooted
from kosmos.data.sources.source import Table
from kosmos.data.sources.unnamed import names_file
from kosmos.errors import DataError
from kosmos.names import listed


def refuse_row_for_names(table: Table, path: str, suffixes: Collection[str]) -> None:
    """Raises DataError where a column is called as a medium of the data is, of a table none of whose rows is of use.

    Args:
        suffixes: of files that an installed modality reads.
    """
    own = table.table if isinstance(table, Rooted) else table
    if not isinstance(own, DelimitedTable) or not len(table):
        return
    for name in own.names:
        if PurePosixPath(name).suffix.lower() in suffixes or ("." in name and names_file(name, table.root(0))):
            raise DataError(
                f"{path}: its first line ({listed(own.names, at_most=4):.120}) is to hold the names of the columns, "
                "and looks like a row; write a line with the names above it"
            )
