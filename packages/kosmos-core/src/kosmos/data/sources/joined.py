"""Several tables as one, and files in class folders as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kosmos.data.sources.columns import Row
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.packed import PackedKinds, PackedTexts
from kosmos.data.sources.source import Extent, RowBlocks, Table, columns_of, row_nbytes, row_with
from kosmos.data.sources.splits import LIST, Split
from kosmos.errors import SampleError


class JoinedTable:
    """The rows of several tables, one table after another (a ``Table``).

    Args:
        splits: the split of each table's rows, for those that state none themselves.
    """

    def __init__(self, tables: Sequence[Table], splits: Sequence[Split | None] | None = None) -> None:
        assert tables
        self.tables = tuple(tables)
        self.splits = tuple(splits) if splits is not None else (None,) * len(tables)
        self._ends = np.cumsum([len(table) for table in tables])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _place(self, index: int) -> tuple[Table, int]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self.tables[number], index - int(self._ends[number]) + len(self.tables[number])

    def row_blocks(self) -> RowBlocks | None:
        """Those of all tables, where all have some."""
        found = [blocks for table in self.tables if (blocks := table.row_blocks()) is not None]
        if len(found) < len(self.tables):
            return None
        begins = [0, *self._ends[:-1]]
        ends = [blocks.ends + begin for blocks, begin in zip(found, begins, strict=True)]
        return RowBlocks(np.concatenate(ends), np.concatenate([blocks.nbytes for blocks in found]))

    def row_nbytes(self) -> NDArray[np.float64] | None:
        """Those of all tables, where all know them."""
        found = [known for table in self.tables if (known := row_nbytes(table)) is not None]
        return np.concatenate(found) if len(found) == len(self.tables) else None

    def holds(self) -> list[tuple[str, int]]:
        return [found for table in self.tables for found in table.holds()]

    def extent(self) -> Extent | None:
        found = [extent for table in self.tables if (extent := table.extent()) is not None]
        if len(found) < len(self.tables):
            return None
        return Extent(tuple(f for extent in found for f in extent.files), f"{[e.rows for e in found]} {self.splits}")

    def row(self, index: int) -> Row:
        table, place = self._place(index)
        return table.row(place)

    def row_with(self, index: int, path: str) -> Row:
        """A row with the column that a path leads into, used or not. Raises SampleError where it has none."""
        table, place = self._place(index)
        return row_with(table, place, path)

    def every_column(self, index: int) -> Collection[str]:
        """The columns of a row, used or not. Raises SampleError where it cannot be read."""
        table, place = self._place(index)
        return columns_of(table, place)

    def origin(self, index: int) -> str:
        table, place = self._place(index)
        return table.origin(place)

    def root(self, index: int) -> Path:
        table, place = self._place(index)
        return table.root(place)

    @property
    def cuts_texts(self) -> bool:
        """As of ``TextTable``, of any of them."""
        return any(getattr(table, "cuts_texts", False) for table in self.tables)

    def goes_on(self, index: int) -> bool:
        """As of ``TextTable``."""
        table, place = self._place(index)
        return hasattr(table, "goes_on") and bool(table.goes_on(place))

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        for table, split in zip(self.tables, self.splits, strict=True):
            for row in table.scan(layout):
                unsaid = split is not None and not isinstance(row, SampleError) and row.get("split") is None
                yield {**row, "split": split} if unsaid else row  # type: ignore[dict-item]


def join(tables: Sequence[Table], splits: Sequence[Split | None]) -> Table:
    """Tables as one; ``splits`` hold for rows that state none themselves."""
    return tables[0] if len(tables) == 1 and splits[0] is None else JoinedTable(tables, splits)


@dataclass(frozen=True)
class Rooted:
    """A table whose rows name media in another folder (a ``Table``)."""

    table: Table
    folder: Path

    def __len__(self) -> int:
        return len(self.table)

    def origin(self, index: int) -> str:
        return self.table.origin(index)

    def root(self, index: int) -> Path:
        return self.folder

    def row(self, index: int) -> Row:
        return self.table.row(index)

    def row_with(self, index: int, path: str) -> Row:
        """As of ``JoinedTable``."""
        return row_with(self.table, index, path)

    def every_column(self, index: int) -> Collection[str]:
        """As of ``JoinedTable``."""
        return columns_of(self.table, index)

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        return self.table.scan(layout)

    def row_blocks(self) -> RowBlocks | None:
        return self.table.row_blocks()

    def row_nbytes(self) -> NDArray[np.float64] | None:
        return row_nbytes(self.table)

    def holds(self) -> Sequence[tuple[str, int]]:
        return self.table.holds()

    def extent(self) -> Extent | None:
        found = self.table.extent()
        return found and found._replace(rows=f"{found.rows} {self.folder.absolute()}")


@dataclass(frozen=True)
class ClassFolderTable:
    """Files in folders named by their text (a ``Table``)."""

    folder: Path
    files: PackedTexts
    """Paths below the folder, ``/`` between their parts: [rows]."""
    modalities: PackedKinds[str]
    """Modality of each file: [rows]."""
    splits: PackedKinds[Split | None]
    """What the outermost folder says, where it is named as a split: [rows]."""
    named: bool = True
    """Whether the names of the folders are texts; else there are none."""
    below: str = ""
    """What stands before the paths where they are named below another folder."""
    lists: PackedKinds[str | None] | None = None
    """The list of a split that names each file, where there are such: [rows]."""
    lists_cut: tuple[str, ...] = ()
    """Lists of splits that were not read to their end."""
    remark: str = ""
    """What is to be said once of a file beside them; empty where nothing is."""

    @property
    def columns(self) -> set[str]:
        """Of its rows."""
        return {*self.modalities.kinds, *(["text"] if self.named else ()), *([LIST] if self.lists else ())}

    def __len__(self) -> int:
        return len(self.files)

    def origin(self, index: int) -> str:
        return str(self.folder / self.files[index])

    def root(self, index: int) -> Path:
        return self.folder

    def row(self, index: int) -> Row:
        file = self.files[index]
        return {self.modalities[index]: f"{self.below}{file}", **self._said(file)}

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        lists = repeat(None, len(self)) if self.lists is None else self.lists
        for file, modality, split, its in zip(self.files, self.modalities, self.splits, lists, strict=True):
            in_list = {} if its is None else {LIST: its}
            yield {modality: file, **self._said(file), "id": file, "split": split, **in_list}

    def _said(self, file: str) -> dict[str, str]:
        return {"text": file.split("/")[-2]} if self.named else {}

    def row_blocks(self) -> None:
        return None

    def holds(self) -> tuple[()]:
        return ()

    def extent(self) -> None:
        return None  # the folder had to be listed, which takes as long
