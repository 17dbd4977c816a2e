"""What columns a file of rows has, and what stands in them, told from its first row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kosmos.data.sources.delimited import SUFFIXES as DELIMITED
from kosmos.data.sources.delimited import columns_of
from kosmos.data.sources.file_names import rows_suffix
from kosmos.data.sources.json_list import first_row
from kosmos.errors import DataError, SampleError

KINDS = (".jsonl", ".json", ".parquet", *DELIMITED)


def first_columns(path: Path, field: str = "") -> Collection[str]:
    """The columns of a file's first row; none where it cannot be read, or is no file of rows. ``field`` as of
    ``FileOptions``."""
    suffix = rows_suffix(path.name)
    if suffix not in KINDS:
        return ()
    try:
        if suffix == ".parquet":
            from pyarrow import parquet

            names: list[str] = parquet.read_schema(path).names
            return names
        return columns_of(path) if suffix in DELIMITED else first_row(path, field)
    except (OSError, ValueError, SampleError, DataError):
        return ()


def first_values(path: Path, wanted: Collection[str], field: str = "") -> Mapping[str, Any]:
    """What the first row of a file has in some columns; those that it lacks are left out, as is all that nobody can
    read. Of a file of delimited values each column holds something."""
    suffix = rows_suffix(path.name)
    there = [name for name in first_columns(path, field) if name in wanted]
    if suffix in DELIMITED:
        return dict.fromkeys(there, "")
    try:
        if suffix == ".parquet":
            from pyarrow import parquet

            with parquet.ParquetFile(path) as file:
                batch = next(file.iter_batches(batch_size=1, columns=there), None) if there else None
                row: dict[str, Any] = batch.to_pylist()[0] if batch is not None and len(batch) else {}
        else:
            row = dict(first_row(path, field)) if there else {}
    except (OSError, ValueError, SampleError, DataError):
        return {}
    return {name: row.get(name) for name in there}
