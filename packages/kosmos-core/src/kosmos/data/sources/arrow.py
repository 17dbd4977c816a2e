"""Rows of arrow tables, and which of their media are there. A value that cannot be read costs its row alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kosmos.data.foreign import first_line
from kosmos.data.sources.columns import Row
from kosmos.data.sources.features import Features
from kosmos.data.sources.json_written import FilledRow
from kosmos.data.sources.media import THERE
from kosmos.data.sources.stored_numbers import is_shortened, values_of
from kosmos.errors import KosmosError, SampleError

MOST_WHOLE_BYTES = 512 << 20
"""Of a table whose rows are taken all at once."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Whatever a storage raises while it reads ``what`` becomes a SampleError; a lack of memory passes."""
    try:
        yield
    except (KosmosError, MemoryError):
        raise
    except Exception as error:  # of text that is not UTF-8, of a year beyond 9999, of fields that share a name, ...
        raise SampleError(f"{what} cannot be read ({first_line(error)})") from error


def read_row(table: Any, index: int, features: Features) -> dict[str, Any]:
    """One row of an arrow table, with names in place of class numbers, and numbers as ``values_of`` has them.

    Raises:
        SampleError: a value has no form in Python.
    """
    one, row = table.slice(index, 1), FilledRow()
    for name, column in zip(one.column_names, one.columns, strict=True):
        with reading(f"column {name!r}"):
            row[name] = values_of(column)[0]
    return features.named(row)


def read_rows(table: Any, features: Features) -> Iterator[dict[str, Any] | SampleError]:
    """Every row as ``read_row`` gives it, or what was wrong with it."""
    try:
        if sum(map(decoded_nbytes, table.columns)) > MOST_WHOLE_BYTES:
            raise SampleError("too much to be had at once")
        with reading("table"):
            rows = (
                [*map(dict, _rows_of(table))] if any(is_shortened(c.type) for c in table.columns) else table.to_pylist()
            )
    except SampleError:  # which row it was, arrow does not say
        for index in range(table.num_rows):
            try:
                yield read_row(table, index, features)
            except SampleError as error:
                yield error
        return
    yield from map(features.named, rows) if features.class_names else rows


def _rows_of(table: Any) -> Iterator[Iterator[tuple[str, Any]]]:
    """Names and values of each row, numbers as ``values_of`` has them."""
    names, columns = table.column_names, [values_of(column) for column in table.columns]
    return (zip(names, row, strict=True) for row in zip(*columns, strict=True))


def decoded_nbytes(values: Any) -> int:
    """Bytes of an arrow array, were each value of a dictionary as often there as it is named."""
    if isinstance(values, pa.ChunkedArray):
        return sum(map(decoded_nbytes, values.chunks))
    kind = values.type
    if pa.types.is_dictionary(kind) and (_is_binary(kind.value_type) or pa.types.is_string(kind.value_type)):
        lengths = pc.take(pc.binary_length(values.dictionary), values.indices)
        return int(values.indices.nbytes) + int(pc.sum(lengths).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(map(decoded_nbytes, values.flatten()))
    return decoded_nbytes(values.flatten()) if _is_list(kind) else int(values.nbytes)


def shadow_rows(
    table: Any, present: Mapping[str, NDArray[np.bool_]], features: Features
) -> Iterator[Row | SampleError]:
    """Rows for ``Table.scan``: the values of some columns, and ``THERE`` for each medium that is there.

    Args:
        table: the columns whose values matter.
        present: column of media to which of its values are there: bool [rows].
    """
    for index, row in enumerate(read_rows(table, features)):
        if not isinstance(row, SampleError):
            for name, there in present.items():
                row[name] = THERE if there[index] else None
        yield row


def plain_columns(schema: Any) -> list[str]:
    """The columns of a table that hold texts, numbers and the like: no bytes, lists or objects."""
    return [field.name for field in schema if not (pa.types.is_nested(field.type) or _is_binary(field.type))]


def shape_of(schema: Any) -> dict[str, Any]:
    """The columns of a table as a row of it would have them: an object for an object, a text for a text, else null."""
    return {field.name: _shape_of(field.type) for field in schema}


def _shape_of(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return {kind.field(number).name: _shape_of(kind.field(number).type) for number in range(kind.num_fields)}
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return "" if is_text else None


def _is_binary(kind: Any) -> bool:
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(check(kind) for check in checks)


def present_values(values: Any) -> NDArray[np.bool_]:
    """Which values of an arrow column hold a medium, as ``holds_medium`` says of Python's: bool [rows]."""
    return np.concatenate([np.zeros(0, np.bool_), *map(_present, values.chunks)])


def _present(values: Any) -> NDArray[np.bool_]:
    there: NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(values.type):
        fields = [values.field(number).is_valid() for number in range(values.type.num_fields)]
        inside: NDArray[np.bool_] = np.any([field.to_numpy(zero_copy_only=False) for field in fields], axis=0)
        return there & inside
    if not _is_list(values.type):
        return there
    # Flattened, lists that are empty or null have no values left, so no parent is named for them.
    parents = pc.list_parent_indices(values).to_numpy(zero_copy_only=False)
    held = np.zeros(len(values), np.bool_)
    held[parents[_present(values.flatten())]] = True
    return held


def _is_list(kind: Any) -> bool:
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view)
    return any(check(kind) for check in checks) or pa.types.is_large_list_view(kind)
