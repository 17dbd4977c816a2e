"""What columns a file of rows has, told from its first row."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from kosmos.data.sources.delimited import SUFFIXES as DELIMITED
from kosmos.data.sources.delimited import columns_of
from kosmos.data.sources.json_list import first_row
from kosmos.errors import DataError, SampleError

KINDS = (".jsonl", ".json", ".parquet", *DELIMITED)


def first_columns(path: Path) -> Collection[str]:
    """The columns of a file's first row; none where it cannot be read, or is no file of rows."""
    suffix = path.suffix.lower()
    if suffix not in KINDS:
        return ()
    try:
        if suffix == ".parquet":
            from pyarrow import parquet

            names: list[str] = parquet.read_schema(path).names
            return names
        return columns_of(path) if suffix in DELIMITED else first_row(path)
    except (OSError, ValueError, SampleError, DataError):
        return ()
