"""The look at every row of a table when a source is opened: which can be used, and which are held out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kosmos.data.sources.chosen import Chosen
from kosmos.data.sources.columns import Row
from kosmos.data.sources.facts import Facts
from kosmos.data.sources.groups import Groups, HeldOutNames
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.source import Table
from kosmos.data.sources.splits import GROUP, Split, hash_of_place, held_out_rows, row_hash, split_of
from kosmos.data.sources.well_known import WELL_KNOWN
from kosmos.errors import DataError, SampleError
from kosmos.names import listed

_UNSAID, _TRAIN, HELD_OUT = 0, 1, 2
"""Of ``Facts.splits``."""
_PARTS = {"train": _TRAIN, "held_out": HELD_OUT}
MOST_NAMED = 6
"""Unknown names of splits that an error names."""


class UnnamedFiles(Protocol):
    """Finds files in columns without a meaning."""

    def __call__(self, row: Row, table: Table, index: int) -> Collection[str]:
        """The columns, of a row that seems to have no media."""
        ...

    def beside(self, row: Row, table: Table, index: int) -> Collection[str]:
        """The columns, of a row that has some."""
        ...


class Examiner:
    """Goes over the rows of a table once.

    Args:
        modalities: those of the run.
        columns: names of the columns that stand for ``id``, ``split`` and a group, where they are named.
        unnamed: finds the files of rows in columns without a meaning.
        check: looks at the columns of rows that can be used, up to the first that has what it needs.
        wishes: finds how a row wants its media sampled, by the modalities that it needs: modalities and keys.
        chosen: which rows are held out, where nothing else says it.
        kept: which rows are read; None is all.
    """

    def __init__(
        self,
        layout: Layout,
        modalities: Collection[str],
        columns: Mapping[str, str],
        unnamed: UnnamedFiles | None = None,
        check: Callable[[Collection[str]], None] | None = None,
        wishes: Callable[[Row, frozenset[str]], Iterable[tuple[str, str]]] | None = None,
        chosen: Chosen | None = None,
        kept: Chosen | None = None,
    ) -> None:
        self.layout, self.modalities = layout, frozenset(modalities)
        self.id_column, self.split_column = (columns.get(role, role) for role in ("id", "split"))
        self.group_column = columns.get(GROUP)
        self.unnamed, self.check, self.wishes = unnamed, check, wishes
        self.choosing = None if chosen is None else chosen.choosing()
        self.keeping = None if kept is None else kept.choosing()
        self.groups: Groups | None = None
        self.names = HeldOutNames()

    def examine(self, table: Table) -> Facts:
        """What there is to know of each row.

        Raises:
            DataError: a row's split has an unknown name, or every row lacks a column; then it is about the first. Or
                nothing would be held out by ``chosen``, or all.
        """
        usable, splits = np.ones(len(table), np.bool_), np.full(len(table), _UNSAID, np.int8)
        hashes = np.zeros(len(table), np.uint64)
        left_out: Counter[str] = Counter()
        self.groups = None if self.group_column is None else Groups(self.group_column, len(table))
        held: set[str] = set()
        beside: set[str] = set()
        wishes: dict[str, set[str]] = {}
        readable, first_error, columns, unknown = 0, "", _ColumnsCheck(self.check), _UnknownSplits()
        for index, row in enumerate(table.scan(self.layout)):
            if self.keeping is not None and not self.keeping.takes(row):
                usable[index] = False
                if isinstance(row, SampleError):
                    first_error = first_error or f"{table.origin(index)}: {row}"
                continue
            hashes[index] = self._hash(row, index)
            try:
                needs = self._needs(row, table, index)
                assert not isinstance(row, SampleError)
            except SampleError as error:
                first_error = first_error or f"{table.origin(index)}: {error}"
                continue
            if missing := needs - self.modalities:
                usable[index] = False
                left_out.update(missing)
            else:
                held |= needs
                beside.update(self.unnamed.beside(row, table, index) if needs and self.unnamed is not None else ())
                for modality, key in self.wishes(row, needs) if needs and self.wishes is not None else ():
                    wishes.setdefault(modality, set()).add(key)
                columns.look(row, table, index)
            readable += 1
            splits[index] = self._split(row, table, index, unknown, usable=bool(usable[index]))
        unknown.finish(self.split_column)
        columns.finish()
        if self.keeping is not None and (readable or self.keeping.passed):
            self.keeping.finish_taking()
        if self.choosing is not None and readable:
            self.choosing.finish()
        wished = {modality: sorted(keys) for modality, keys in sorted(wishes.items())}
        return Facts(
            usable, hashes, splits, dict(left_out), readable, first_error,
            held=sorted(held), beside=sorted(beside), wishes=wished,
            said=[*self._remarks(table, hashes, usable, splits == HELD_OUT)],
            passed=0 if self.keeping is None else self.keeping.passed,
        )  # fmt: skip

    def _remarks(
        self, table: Table, hashes: NDArray[np.uint64], usable: NDArray[np.bool_], held: NDArray[np.bool_]
    ) -> Iterator[str]:
        for choosing in (self.keeping, self.choosing):
            yield from choosing.remarks() if choosing is not None else ()
        if self.groups is not None:
            by = "the split of the data" if self.choosing is None else "held_out"
            yield from self.groups.remarks(table, hashes, usable, held, by)
        yield from self.names.remarks(self.split_column)

    def _needs(self, row: Row | SampleError, table: Table, index: int) -> frozenset[str]:
        """Modalities that the row needs."""
        if isinstance(row, SampleError):
            raise row
        needs = self.layout.needs(row)
        if not needs and self.unnamed is not None:
            return frozenset(WELL_KNOWN.get(key, key) for key in self.unnamed(row, table, index))
        return needs

    def _hash(self, row: Row | SampleError, index: int) -> int:
        if isinstance(row, SampleError):
            return hash_of_place(index)
        group = None if self.groups is None else self.groups.hash(row, index)
        if group is not None:
            return group
        identity = row.get(self.id_column)
        return row_hash(f"id {identity}") if isinstance(identity, str | int) else hash_of_place(index)

    def _split(self, row: Row, table: Table, index: int, unknown: _UnknownSplits, *, usable: bool) -> int:
        said = row.get(self.split_column)
        if self.choosing is not None:
            own = None if self.choosing.column == self.split_column else split_of(said)
            return _PARTS[self.choosing.split(row, table.origin(index), own, usable=usable)]
        if said is None or (isinstance(said, str) and not said.strip()):
            return _UNSAID
        if (part := split_of(said)) is None:
            unknown.add(said, table, index)
            return _UNSAID
        if part == "held_out" and usable and said != part:
            self.names.add(said)
        return _PARTS[part]


class _UnknownSplits:
    """Rows whose split has a name that says neither train nor held out."""

    def __init__(self) -> None:
        self._first: tuple[str, Any] | None = None
        self._rows = 0
        self._values: dict[str, None] = {}

    def add(self, said: Any, table: Table, index: int) -> None:
        self._rows += 1
        self._first = self._first or (table.origin(index), said)
        if len(self._values) < MOST_NAMED:
            self._values[f"{said!s:.40}"] = None

    def finish(self, column: str) -> None:
        """Raises DataError where there are some."""
        if self._first is None:
            return
        (origin, said), values = self._first, [*self._values]
        rows = "1 row has" if self._rows == 1 else f"{self._rows:,} rows have"
        such = f"such a one: {listed(values)}" if len(values) > 1 else "it"
        raise DataError(
            f"{origin}: unknown split {said!r:.60} ({rows} {such}); expected train, or test, validation, val, dev, "
            "eval or held_out, or nothing; to hold out rows by other values, name these alone in "
            f"the source's held_out (held_out: {{{column}: {values[0]}}}), and all others are trained on"
        )


class _ColumnsCheck:
    """Whether any row has the columns that a layout needs. One that lacks them costs itself alone."""

    def __init__(self, check: Callable[[Collection[str]], None] | None) -> None:
        self._check = check
        self._lacking: set[frozenset[str]] = set()
        self._first: tuple[str, DataError] | None = None

    def look(self, row: Row, table: Table, index: int) -> None:
        # Rows are mostly alike, and looking for the nearest name takes longer than all else that is done to a row.
        if self._check is None or (keys := frozenset(row)) in self._lacking:
            return
        try:
            self._check(row.keys())
            self._check = None
        except DataError as error:
            self._lacking.add(keys)
            self._first = self._first or (table.origin(index), error)

    def finish(self) -> None:
        """Raises DataError where every row lacked a column."""
        if self._check is not None and self._first is not None:
            origin, error = self._first
            raise DataError(f"{origin}: {error}") from error


def choose_rows(facts: Facts, split: Split, share: float, *, together: bool = False) -> NDArray[np.int64]:
    """The usable rows of one part. A split that says the same of every row (train) is no split.

    Rows that say nothing where others do, and unreadable ones, are trained on.

    Args:
        together: rows of one hash are a group.

    Raises:
        DataError: all rows are of one group.
    """
    rows = np.flatnonzero(facts.usable)
    if np.any(facts.splits[rows] == HELD_OUT):
        held = facts.splits[rows] == HELD_OUT
    else:
        held = held_out_rows(facts.hashes[rows], share, together=together)
        if together and share and len(rows) > 1 and not held.any():
            raise DataError(f"columns.{GROUP}: all rows are of one group, of which none could be trained on")
    chosen: NDArray[np.int64] = rows[held if split == "held_out" else ~held].astype(np.int64)
    return chosen
