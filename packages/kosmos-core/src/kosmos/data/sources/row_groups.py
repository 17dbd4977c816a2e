"""Row groups of a parquet file in about the memory that their pages take, however often a dictionary's values repeat.

A file of 300 bytes can hold one text of a megabyte as the value of 20,000 rows: read as texts that is 20 GB.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kosmos.data.free_memory import memory
from kosmos.data.sources.arrow import MOST_WHOLE_BYTES, decoded_nbytes
from kosmos.errors import DataError, SampleError

MOST_MEAN_BYTES = 256 << 20
"""Of the texts in a column of a row group, on average: none as large is trained on."""
SMALL_BYTES = 64 << 20
"""What is read without a look at how much memory is free, or at how often a dictionary's values repeat."""


def read_group(file: Any, path: Path, group: int, columns: list[str]) -> Any:
    """Columns of a row group as a table.

    Texts of which a dictionary would make too many stay numbers and a dictionary; each row has its own text still.

    Raises:
        SampleError: the texts are too large.
        DataError: it has no room in memory.
    """
    metadata, tops = file.metadata.row_group(group), tuple(f"{name}." for name in columns)
    chunks = [metadata.column(number) for number in range(metadata.num_columns)]
    chunks = [chunk for chunk in chunks if f"{chunk.path_in_schema}.".startswith(tops)]
    texts = _texts(file.metadata.schema)
    for chunk in chunks:
        mean = chunk.total_uncompressed_size / max(chunk.num_values, 1)
        if mean > MOST_MEAN_BYTES and chunk.path_in_schema in texts:
            told = f"{chunk.path_in_schema}: texts of {mean:,.0f} bytes on average"
            raise SampleError(f"{told}, over the limit of {MOST_MEAN_BYTES:,}")
    nbytes = sum(chunk.total_uncompressed_size for chunk in chunks)
    no_room = f"{path}: row group {group} of {nbytes / 2**20:,.0f} MiB has no room in memory; write smaller row groups"
    if nbytes > SMALL_BYTES and (found := memory()) is not None and 2 * nbytes > found.free:  # pages, and their values
        raise DataError(no_room)
    coded = [chunk.path_in_schema for chunk in chunks if _may_repeat(chunk)]
    try:
        if not coded:
            return file.read_row_group(group, columns=columns)
        with pq.ParquetFile(path, metadata=file.metadata, read_dictionary=coded) as anew:
            table = anew.read_row_group(group, columns=columns)
        return _decoded(table, file.schema_arrow)
    except pa.ArrowCapacityError:  # a dictionary holds 2 GiB, and the pages of as much are about as large as it
        return file.read_row_group(group, columns=columns)
    except MemoryError as error:
        raise DataError(no_room) from error


def _texts(schema: Any) -> set[str]:
    columns = [schema.column(number) for number in range(len(schema))]
    return {column.path for column in columns if column.logical_type.type == "STRING"}


def _may_repeat(chunk: Any) -> bool:
    is_bytes = chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page
    return bool(is_bytes and chunk.num_values * chunk.total_uncompressed_size > SMALL_BYTES)


def _decoded(table: Any, schema: Any) -> Any:
    """Texts again, which are faster to take rows from, where they are few enough."""
    for number, field in enumerate(table.schema):
        kind = schema.field(field.name).type
        if kind != field.type and decoded_nbytes(table.column(number)) < MOST_WHOLE_BYTES:
            with suppress(pa.ArrowNotImplementedError):  # to views: each row has its own text all the same
                table = table.set_column(number, field.name, table.column(number).cast(kind))
    return table
