"""A source of documents over the rows of a table, and what opening one has to find out about each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Blocks, Document, Segment, Source, Text
from kosmos.data.sources.chosen import Chosen
from kosmos.data.sources.columns import Row, look_up
from kosmos.data.sources.facts import Facts
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.media import NoSuchFileError, OutsideRootError, resolve
from kosmos.data.sources.splits import GROUP, Split, group_hash, held_out_rows, row_hash, split_of
from kosmos.data.sources.weights import weight_of
from kosmos.data.sources.well_known import WELL_KNOWN
from kosmos.errors import DataError, SampleError


class RowBlocks(NamedTuple):
    """Which rows of a table are read together."""

    ends: NDArray[np.int64]
    """Number of the row behind the last of each block: [blocks]."""
    nbytes: NDArray[np.int64]
    """What each takes, by the table's own account: [blocks]. Values that repeat may take more in memory."""


class Extent(NamedTuple):
    """What a scan reads."""

    files: tuple[Path, ...]
    rows: str
    """Which rows of them, for comparison."""


MAX_NAME = 4096
"""Longest text that is looked at as the name of a file."""


class Names(NamedTuple):
    """What data call a document, its row and its files: nothing that only this machine knows them by."""

    document: str
    row: str | int | None
    """The row's own id; None where it has none."""
    files: Mapping[Path, str]
    """What the row calls each of the files that it names."""


_PART = 1 << 20
"""Characters of a text that are looked at together."""
AT_ONCE_BYTES = 64 << 20
"""Memory of the blocks among which a lane's documents are shuffled; at least one block."""


class Table(Protocol):
    """Rows by number. Picklable; holds no open file when pickled."""

    def __len__(self) -> int: ...

    def row(self, index: int) -> Row:
        """The row. Raises SampleError where it is unreadable."""
        ...

    def origin(self, index: int) -> str:
        """Where the row is, for humans."""
        ...

    def root(self, index: int) -> Path:
        """The folder that the row's media are under."""
        ...

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        """Every row in order, as cheaply as possible: media may be ``THERE`` in place of their bytes."""
        ...

    def row_blocks(self) -> RowBlocks | None:
        """None where a row is read alone."""
        ...

    def holds(self) -> Sequence[tuple[str, int]]:
        """Files in the order of the rows, with how many each holds; none where all that is known of a row is its id."""
        ...

    def extent(self) -> Extent | None:
        """None where scanning is no work worth a record, or where files alone do not say what is found."""
        ...


def row_with(table: Table, index: int, path: str) -> Row:
    """A row with the column that a path leads into. A table that reads no more columns than are used has a method of
    this name. Raises SampleError where the row cannot be read."""
    wider = getattr(table, "row_with", None)
    row: Row = table.row(index) if wider is None else wider(index, path)
    return row


@dataclass(eq=False)
class RowSource:
    """The documents of some rows of a table (a ``Source``)."""

    name: str
    table: Table
    layout: Layout
    rows: NDArray[np.int64]
    """Numbers of the table's rows that belong to this source: [documents]."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Rows of the whole table that were left out at opening, by the modality (or suffix) that was not asked for."""
    max_text_bytes: int = 4 << 20
    """Most bytes of text in a document."""
    modalities: frozenset[str] | None = None
    """Those that any usable row of the table holds, for what warns of one that none does; None is not known."""
    folder: str = "."
    """What holds the file or folder of the data."""
    root_field: str = ""
    """Field of the run file that names the folder of the rows' media, where it names none; for who may have
    forgotten it."""
    wishes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Keys of rows and of parts of chats that say how media are to be sampled, which nobody reads, by modality."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Columns of files beside media that are not read, with what to do."""
    identity: str = ""
    """As of ``fingerprint``."""
    places: tuple[str, ...] = ()
    """Folders that its rows and media lie in: where one is gone no sample is at fault."""
    remarks: tuple[str, ...] = ()
    """What its rows have that is not read though it may be meant, and what to do, a line each."""
    one_end: bool = True
    """Whether of a text file the last document alone has an end. In runs that were begun earlier each has one."""
    weighs: bool = True
    """Whether its rows are asked what they weigh: those that are only scored are not."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def cuts_texts(self) -> bool:
        """Whether its documents are, or some of them, pieces of text files."""
        return bool(getattr(self.table, "cuts_texts", False))

    def origin(self, index: int) -> str:
        """Where document ``index`` is, for humans; known even where the row is broken."""
        return self.table.origin(int(self.rows[index]))

    def blocks(self) -> Blocks | None:
        """Which documents are read together; None where each is read alone."""
        found = self.table.row_blocks()
        if found is None or not len(self.rows):
            return None
        at_once = max(1, int(AT_ONCE_BYTES // max(1.0, found.nbytes.mean())))
        return Blocks(np.searchsorted(found.ends, self.rows, side="right"), at_once)

    def fingerprint(self) -> str:
        """What tells these rows from others, by their ids, or else by the files that they lie in."""
        return self.identity

    def document(self, index: int) -> Document:
        """The document of row ``index``. Raises SampleError, which names its origin, where it cannot be used."""
        row, origin = int(self.rows[index]), self.origin(index)
        try:
            held = self.table.row(row)
            segments, references = self.layout.segments(held, self.table.root(row)), self.layout.references(held)
            weight = weight_of(held, self.layout.columns) if self.weighs else 1.0
            self._check(segments)
        except SampleError as error:
            raise type(error)(f"{origin}: {error}{self._root_advice(error, row)}") from error
        goes_on = self.one_end and self.cuts_texts and bool(self.table.goes_on(row))  # type: ignore[attr-defined]
        return Document(origin, segments, references, weight, goes_on)

    def _root_advice(self, error: SampleError, row: int) -> str:
        """What to do, behind a message, where a file that the row names is not there and no folder was named."""
        if self.root_field and isinstance(error, OutsideRootError):
            return f" ({self.root_field})"
        if not self.root_field or not isinstance(error, NoSuchFileError):
            return ""
        return (
            f"; if the media are in another folder than {self.table.root(row).absolute()}, set {self.root_field} to it"
        )

    def names(self, index: int) -> Names:
        """What the data call document ``index``. Raises SampleError where its row cannot be read."""
        number = int(self.rows[index])
        row, root = self.table.row(number), self.table.root(number)
        identity = row.get(self.layout.columns.get("id", "id"))
        files = {file: name for name in _texts_of(row) if (file := _file_of(name, root)) is not None}
        name = self.origin(index).removeprefix(f"{self.folder}/")
        return Names(name, identity if isinstance(identity, str | int) else None, files)

    def value(self, index: int, path: str) -> Any:
        """What the row of document ``index`` has in a column, used or not. Raises SampleError where it has none."""
        return look_up(row_with(self.table, int(self.rows[index]), path), path)

    def _check(self, segments: tuple[Segment, ...]) -> None:
        if not segments:
            raise SampleError("no text and no media")
        size = sum(_nbytes(s.text) for s in segments if isinstance(s, Text))
        if size > self.max_text_bytes:
            raise SampleError(f"{size:,} bytes of text, over the limit of {self.max_text_bytes:,} (max_text_bytes)")


def _nbytes(text: str) -> int:
    """Of UTF-8, of which no whole copy is made: the text may be too large."""
    return sum(len(text[begin : begin + _PART].encode()) for begin in range(0, len(text), _PART))


def _texts_of(value: Any) -> Iterator[str]:
    """The texts in a value of a row, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_of(inner)


def _file_of(name: str, root: Path) -> Path | None:
    """The file below ``root`` that a text names, if it does."""
    if len(name) > MAX_NAME:
        return None
    try:
        return resolve(root, name)
    except SampleError:
        return None


_UNSAID, _TRAIN, HELD_OUT = 0, 1, 2
"""Of ``Facts.splits``."""
_PARTS = {"train": _TRAIN, "held_out": HELD_OUT}


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
    ) -> None:
        self.layout, self.modalities = layout, frozenset(modalities)
        self.id_column, self.split_column = (columns.get(role, role) for role in ("id", "split"))
        self.group_column = columns.get(GROUP)
        self.unnamed, self.check, self.wishes = unnamed, check, wishes
        self.choosing = None if chosen is None else chosen.choosing()

    def examine(self, table: Table) -> Facts:
        """What there is to know of each row.

        Raises:
            DataError: a row's split has an unknown name, or every row lacks a column; then it is about the first. Or
                nothing would be held out by ``chosen``, or all.
        """
        usable, splits = np.ones(len(table), np.bool_), np.full(len(table), _UNSAID, np.int8)
        hashes = np.empty(len(table), np.uint64)
        left_out: Counter[str] = Counter()
        held: set[str] = set()
        beside: set[str] = set()
        wishes: dict[str, set[str]] = {}
        readable, first_error, columns = 0, "", _ColumnsCheck(self.check)
        for index, row in enumerate(table.scan(self.layout)):
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
            splits[index] = self._split(row, table, index, usable=bool(usable[index]))
        columns.finish()
        if self.choosing is not None and readable:
            self.choosing.finish()
        wished = {modality: sorted(keys) for modality, keys in sorted(wishes.items())}
        return Facts(
            usable, hashes, splits, dict(left_out), readable, first_error,
            held=sorted(held), beside=sorted(beside), wishes=wished,
        )  # fmt: skip

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
            return row_hash(f"row {index}")
        group = None if self.group_column is None else group_hash(row, self.group_column)
        if group is not None:
            return group
        identity = row.get(self.id_column)
        return row_hash(f"id {identity}" if isinstance(identity, str | int) else f"row {index}")

    def _split(self, row: Row, table: Table, index: int, *, usable: bool) -> int:
        said = row.get(self.split_column)
        if self.choosing is not None:
            own = None if self.choosing.column == self.split_column else split_of(said)
            return _PARTS[self.choosing.split(row, table.origin(index), own, usable=usable)]
        if said is None:
            return _UNSAID
        part = split_of(said)
        if part is None:
            raise DataError(
                f"{table.origin(index)}: unknown split {said!r:.60}; expected train, or test, validation, val, dev, "
                "eval or held_out; to hold out rows by other values, name the column in the source's held_out alone "
                f"({{{self.split_column}: {said!s:.40}}})"
            )
        return _PARTS[part]


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


def unweighed(source: Source) -> Source:
    """The source as one that is only scored."""
    return replace(source, weighs=False) if isinstance(source, RowSource) else source
