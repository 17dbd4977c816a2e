"""Parquet files, read by row group.

A row group is read whole for any of its rows, so rows are drawn from few groups at a time (``Blocks``), and the groups
read last are kept. How many that has to be depends on the lanes of the process and on how many sources are parquet:
where too few were kept, which shows by groups that are read again, more are, while there is memory.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kosmos.data.file_state import CHANGED, State, check_state, state_of
from kosmos.data.foreign import first_line
from kosmos.data.free_memory import memory
from kosmos.data.sources.arrow import plain_columns, present_values, read_row, reading, shadow_rows, shape_of
from kosmos.data.sources.columns import Row, there
from kosmos.data.sources.features import Features, features_of_schema
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.row_groups import read_group
from kosmos.data.sources.source import Extent, RowBlocks
from kosmos.data.sources.splits import check_group
from kosmos.errors import DataError, SampleError

MOST_KEPT_BYTES = 128 << 20
"""Of row groups that a process keeps at first: enough for a lane of two sources (``AT_ONCE_BYTES``)."""
SURE_BYTES = 512 << 20
"""Of row groups that are kept, where they are needed, however little memory is free."""
LEAST_KEPT = 2
"""Row groups that are kept however large they are."""
LEFT_FREE = 0.25
"""Share of the memory that is left free by those that are kept beyond ``SURE_BYTES``."""
MOST_MISSED = 10_000
"""Groups that were dropped too early, of which it is known."""

MOST_FOOTER_BYTES = 16 << 20
"""Of footers that a process keeps, as they lie in the files; the last one however large it is."""

Group = tuple[Path, State, tuple[str, ...], int]
"""Path of a file, what it was when its row groups were found, columns, number of the row group."""


@dataclass(slots=True)
class _Kept:
    table: Any
    asked: int = 0
    """How often a row of it was asked for."""


class KeptGroups:
    """The row groups that were read last, as arrow tables."""

    def __init__(self) -> None:
        self.groups: OrderedDict[Group, _Kept] = OrderedDict()
        self._nbytes = 0
        self._more = 0
        """Bytes beyond ``MOST_KEPT_BYTES`` that are kept."""
        self._missed: dict[Group, None] = {}
        """Those that were dropped when few of their rows had been asked for, the last one last."""

    def get(self, group: Group, read: Callable[[], Any]) -> Any:
        """The group, for one of its rows. ``read`` is called where it is not kept."""
        if group not in self.groups:
            self.groups[group] = kept = _Kept(read())
            self._nbytes += kept.table.nbytes
            if group in self._missed:
                del self._missed[group]
                self._more += kept.table.nbytes if self._has_room(kept.table.nbytes) else 0
            while self._nbytes > MOST_KEPT_BYTES + self._more and len(self.groups) > LEAST_KEPT:
                self._drop()
        kept = self.groups[group]
        kept.asked += 1
        self.groups.move_to_end(group)
        return kept.table

    def _has_room(self, nbytes: int) -> bool:
        if MOST_KEPT_BYTES + self._more + nbytes <= SURE_BYTES:
            return True
        found = memory()
        return found is not None and found.free - nbytes >= LEFT_FREE * found.total

    def _drop(self) -> None:
        group, kept = self.groups.popitem(last=False)
        self._nbytes -= kept.table.nbytes
        if 2 * kept.asked < kept.table.num_rows:  # an epoch asks for all of them, but for those that are held out
            self._missed[group] = None
            if len(self._missed) > MOST_MISSED:
                del self._missed[next(iter(self._missed))]


KEPT = KeptGroups()
"""Of all files that this process reads."""


class KeptFooters:
    """The footers of files that were read last: one of 10,000 row groups takes 34 ms to parse, a group of it 0.7."""

    def __init__(self) -> None:
        self.footers: OrderedDict[tuple[Path, int, int], Any] = OrderedDict()
        """By a file's path, its size and the time of its last change."""
        self._nbytes = 0

    def open(self, path: Path, state: State) -> Any:
        """The file, to read row groups from.

        Args:
            state: what it was when these were found.

        Raises:
            OSError, ArrowException: it cannot be read.
            SampleError: it is another than it was.
        """
        check_state(path, state)
        key = path, *state
        if (known := self.footers.get(key)) is not None:
            self.footers.move_to_end(key)
            return pq.ParquetFile(path, metadata=known)
        file = pq.ParquetFile(path)
        self.footers[key] = file.metadata
        self._nbytes += file.metadata.serialized_size
        while self._nbytes > MOST_FOOTER_BYTES and len(self.footers) > 1:
            self._nbytes -= self.footers.popitem(last=False)[1].serialized_size
        return file


FOOTERS = KeptFooters()
"""Of all files that this process reads."""


class ParquetTable:
    """The rows of a parquet file (a ``Table``). Only the columns that the layout uses are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._state = state_of(path)
            with pq.ParquetFile(path) as file:
                schema = file.schema_arrow
                groups = [file.metadata.row_group(n) for n in range(file.num_row_groups)]
                sizes, nbytes = [g.num_rows for g in groups], [_nbytes(g, schema.names) for g in groups]
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}: no readable parquet file ({first_line(error)})") from error
        self.features: Features = features_of_schema(schema.metadata)
        self.columns: tuple[str, ...] = tuple(schema.names)
        self._every = self.columns
        self.shape: Mapping[str, Any] = shape_of(schema)
        self.ends: NDArray[np.int64] = np.cumsum([0, *sizes], dtype=np.int64)[1:]
        self._nbytes: NDArray[np.int64] = np.array(nbytes, np.int64).reshape(len(sizes), len(self.columns))

    def use(self, layout: Layout) -> None:
        """Read no more columns than a layout uses. Raises DataError where one is missing, or there twice."""
        try:
            layout.check(self.shape.keys())
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from error
        used = layout.used(self.columns)
        if twice := [name for name, count in Counter(self.columns).items() if count > 1 and name in used]:
            raise DataError(f"{self.path}: more than one column is called {twice[0]!r}; rename all but one")
        self._nbytes = self._nbytes[:, [name in used for name in self.columns]]
        self.columns = tuple(name for name in self.columns if name in used)

    def row_blocks(self) -> RowBlocks:
        """The row groups."""
        return RowBlocks(self.ends, self._nbytes.sum(1))

    def holds(self) -> list[tuple[str, int]]:
        return [(str(self.path), len(self))]

    def extent(self) -> Extent:
        return Extent((self.path,), "")

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def origin(self, index: int) -> str:
        return f"{self.path}:row {index}"

    def root(self, index: int) -> Path:
        return self.path.parent

    def row(self, index: int) -> Row:
        group = int(np.searchsorted(self.ends, index, side="right"))
        begin = int(self.ends[group - 1]) if group else 0
        with reading(f"row group {group}"):
            table = self._group(group, self.columns)
        return read_row(table, index - begin, self.features)

    def row_with(self, index: int, path: str) -> Row:
        """The column of a row that a path leads into, used or not. Raises SampleError where there is none."""
        group = int(np.searchsorted(self.ends, index, side="right"))
        begin = int(self.ends[group - 1]) if group else 0
        top = there(path, self._every)
        with reading(f"row group {group}"):
            table = self._group(group, (top,))
        return read_row(table, index - begin, self.features)

    def every_column(self, index: int) -> tuple[str, ...]:
        """The columns of a row, used or not."""
        del index  # all have the same
        return self._every

    def _group(self, group: int, columns: tuple[str, ...]) -> Any:
        def read() -> Any:
            with FOOTERS.open(self.path, self._state) as file:
                table = read_group(file, self.path, group, list(columns))
            check_state(self.path, self._state)  # it may have been written as it was read
            return table

        return KEPT.get((self.path, self._state, columns, group), read)

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        if state_of(self.path) != self._state:
            raise DataError(f"{self.path}: {CHANGED}")
        with pq.ParquetFile(self.path) as file:
            plain = plain_columns(file.schema_arrow)
            check_group(layout.columns, file.schema_arrow.names, plain)
            light, media = layout.scanned(file.schema_arrow.names, plain)
            for group in range(file.num_row_groups):
                try:
                    with reading(f"row group {group}"):
                        table = read_group(file, self.path, group, light)
                        present = {name: _present(file, self.path, group, name) for name in media}
                except SampleError as error:
                    yield from (SampleError(str(error)) for _ in range(file.metadata.row_group(group).num_rows))
                    continue
                yield from shadow_rows(table, present, self.features)


def _nbytes(group: Any, columns: Sequence[str]) -> list[int]:
    """Bytes of a row group's values, of each top column."""
    nbytes: Counter[str] = Counter()
    for chunk in (group.column(number) for number in range(group.num_columns)):
        nbytes[_top_of(chunk, columns)] += chunk.total_uncompressed_size
    return [nbytes[name] for name in columns]


def _top_of(chunk: Any, columns: Collection[str]) -> str:
    """The column that a chunk is part of; names may hold dots themselves."""
    parts = chunk.path_in_schema.split(".")
    tops = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((top for top in tops if top in columns), parts[0])


def _present(file: Any, path: Path, group: int, column: str) -> NDArray[np.bool_]:
    """Which rows of a row group hold a value, by its statistics where they say it."""
    metadata = file.metadata.row_group(group)
    counts = []
    for number in range(metadata.num_columns):
        chunk = metadata.column(number)
        if _top_of(chunk, file.schema_arrow.names) == column:
            statistics = chunk.statistics
            known = statistics is not None and statistics.has_null_count
            counts.append((statistics.null_count, chunk.num_values) if known else None)
    if any(count is not None and count[0] == 0 for count in counts):
        return np.ones(metadata.num_rows, np.bool_)
    if counts and all(count is not None and count[0] == count[1] for count in counts):
        return np.zeros(metadata.num_rows, np.bool_)
    return present_values(read_group(file, path, group, [column]).column(0))
