"""Parquet files, read by row group.

A row group is read whole for any of its rows, so rows are drawn from few groups at a time (``Blocks``), and the groups
read last are kept.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from kosmos.data.sources.source import RowBlocks
from kosmos.errors import DataError, SampleError

MOST_KEPT_BYTES = 512 << 20
"""Of row groups that a process keeps: enough for eight lanes (``AT_ONCE_BYTES``)."""
LEAST_KEPT = 2
"""Row groups that are kept however large they are."""


class KeptGroups:
    """The row groups of some files that were read last. Left behind when pickled."""

    def __init__(self) -> None:
        self._groups: OrderedDict[tuple[Path, int], Any] = OrderedDict()
        self._nbytes = 0

    def __reduce__(self) -> Any:
        return KeptGroups, ()

    def get(self, path: Path, number: int, read: Callable[[], Any]) -> Any:
        """Row group ``number`` of ``path`` as an arrow table; ``read`` is called where it is not kept."""
        key = path, number
        if key not in self._groups:
            self._groups[key] = group = read()
            self._nbytes += group.nbytes
            while self._nbytes > MOST_KEPT_BYTES and len(self._groups) > LEAST_KEPT:
                self._nbytes -= self._groups.popitem(last=False)[1].nbytes
        self._groups.move_to_end(key)
        return self._groups[key]


class ParquetTable:
    """The rows of a parquet file (a ``Table``). Only the columns that the layout uses are read.

    Args:
        kept: shared by the files of a source, so that what they keep together is bounded.
    """

    def __init__(self, path: Path, kept: KeptGroups | None = None) -> None:
        self.path = path
        self.kept = kept or KeptGroups()
        try:
            with pq.ParquetFile(path) as file:
                schema = file.schema_arrow
                groups = [file.metadata.row_group(n) for n in range(file.num_row_groups)]
                sizes, nbytes = [g.num_rows for g in groups], [_nbytes_by_column(g) for g in groups]
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}: no readable parquet file ({first_line(error)})") from error
        self.features: Features = features_of_schema(schema.metadata)
        self.columns: tuple[str, ...] = tuple(schema.names)
        self.ends: NDArray[np.int64] = np.cumsum([0, *sizes], dtype=np.int64)[1:]
        self._nbytes = nbytes

    def use(self, layout: Layout) -> None:
        """Read no more columns than a layout uses. Raises DataError where one is missing."""
        try:
            layout.check(self.columns)
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from error
        used = layout.used(self.columns)
        self.columns = tuple(name for name in self.columns if name in used)

    def blocks(self) -> RowBlocks:
        """The row groups."""
        used = [sum(of_column[name] for name in self.columns) for of_column in self._nbytes]
        return RowBlocks(self.ends, np.asarray(used, np.int64))

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
        def read() -> Any:
            with pq.ParquetFile(self.path) as file:
                return file.read_row_group(group, columns=list(self.columns))

        return self.kept.get(self.path, group, read)

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


def _nbytes_by_column(group: Any) -> Counter[str]:
    """Bytes of a row group's values, by top column."""
    nbytes: Counter[str] = Counter()
    for number in range(group.num_columns):
        chunk = group.column(number)
        nbytes[chunk.path_in_schema.split(".")[0]] += chunk.total_uncompressed_size
    return nbytes


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
