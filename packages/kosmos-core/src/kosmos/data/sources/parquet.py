"""Parquet files, read by row group."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kosmos.data.foreign import first_line
from kosmos.data.sources.columns import Row
from kosmos.data.sources.features import Features, features_of_schema
from kosmos.data.sources.layouts import Layout
from kosmos.errors import DataError, SampleError

CACHED_ROW_GROUPS = 2
"""Row groups of a file that are kept. Small, since a row group of media may take 100 MB."""


class ParquetTable:
    """The rows of a parquet file (a ``Table``). Only the columns that the layout uses are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with pq.ParquetFile(path) as file:
                schema = file.schema_arrow
                sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}: no readable parquet file ({first_line(error)})") from error
        self.features: Features = features_of_schema(schema.metadata)
        self.columns: tuple[str, ...] = tuple(schema.names)
        self.ends: NDArray[np.int64] = np.cumsum([0, *sizes], dtype=np.int64)[1:]

    def use(self, layout: Layout) -> None:
        """Read no more columns than a layout uses. Raises DataError where one is missing."""
        try:
            layout.check(self.columns)
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from error
        used = layout.used(self.columns)
        self.columns = tuple(name for name in self.columns if name in used)

    @cached_property
    def _cache(self) -> OrderedDict[int, Any]:
        return OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_cache"}

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def origin(self, index: int) -> str:
        return f"{self.path}:row {index}"

    def root(self, index: int) -> Path:
        return self.path.parent

    def row(self, index: int) -> Row:
        group = int(np.searchsorted(self.ends, index, side="right"))
        begin = int(self.ends[group - 1]) if group else 0
        try:
            row = self._group(group).slice(index - begin, 1).to_pylist()[0]
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise SampleError(f"row group {group} cannot be read ({first_line(error)})") from error
        return self.features.named(row)

    def _group(self, group: int) -> Any:
        if group in self._cache:
            self._cache.move_to_end(group)
            return self._cache[group]
        with pq.ParquetFile(self.path) as file:
            self._cache[group] = file.read_row_group(group, columns=list(self.columns))
        while len(self._cache) > CACHED_ROW_GROUPS:
            self._cache.popitem(last=False)
        return self._cache[group]

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        light, media = layout.scanned(self.columns)
        with pq.ParquetFile(self.path) as file:
            for group in range(file.num_row_groups):
                try:
                    table = file.read_row_group(group, columns=light)
                    values = {name: table.column(name).to_pylist() for name in light}
                    present = {name: _present(file, group, name) for name in media}
                except (OSError, pa.ArrowException) as error:
                    reason = f"row group {group} cannot be read ({first_line(error)})"
                    yield from (SampleError(reason) for _ in range(file.metadata.row_group(group).num_rows))
                    continue
                yield from shadow_rows(self.columns, values, present, file.metadata.row_group(group).num_rows)


def shadow_rows(
    columns: Sequence[str], values: Mapping[str, list[Any]], present: Mapping[str, NDArray[np.bool_]], count: int
) -> Iterator[Row]:
    """Rows for ``Table.scan``: the values of some columns, and ``True`` for each medium that is there."""
    shown = [name for name in columns if name in values or name in present]
    for index in range(count):
        yield {n: values[n][index] if n in values else True if present[n][index] else None for n in shown}


def _present(file: Any, group: int, column: str) -> NDArray[np.bool_]:
    """Which rows of a row group hold a value, by its statistics where they say it."""
    metadata = file.metadata.row_group(group)
    counts = []
    for number in range(metadata.num_columns):
        chunk = metadata.column(number)
        if chunk.path_in_schema.split(".")[0] == column:
            statistics = chunk.statistics
            known = statistics is not None and statistics.has_null_count
            counts.append((statistics.null_count, chunk.num_values) if known else None)
    if any(count is not None and count[0] == 0 for count in counts):
        return np.ones(metadata.num_rows, np.bool_)
    if counts and all(count is not None and count[0] == count[1] for count in counts):
        return np.zeros(metadata.num_rows, np.bool_)
    values = file.read_row_group(group, columns=[column]).column(0)
    return present_values(values)


def present_values(values: Any) -> NDArray[np.bool_]:
    """Which values of an arrow column are there: bool [rows]. A ``{bytes, path}`` of nulls is not."""
    there = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(values.type):
        parts = [chunk.field(number) for chunk in values.chunks for number in range(values.type.num_fields)]
        if parts:
            width = values.type.num_fields
            inside = [
                np.any([p.is_valid().to_numpy(zero_copy_only=False) for p in parts[n : n + width]], axis=0)
                for n in range(0, len(parts), width)
            ]
            there = there & np.concatenate(inside)
    return np.asarray(there, np.bool_)
