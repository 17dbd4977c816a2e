"""A source of documents over the rows of a table, and what opening one has to find out about each row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Blocks, Document, Media, Segment, Source, StoredMedia, Text
from kosmos.data.lost_media import none_left
from kosmos.data.page_document import PageDocument
from kosmos.data.sources.columns import Row, look_up, texts_in
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.lost import leaving_out
from kosmos.data.sources.media import (
    MisspeltFileError,
    NoSuchFileError,
    NotInSampleError,
    OutsideRootError,
    resolve,
    without_rates,
)
from kosmos.data.sources.pages_of_rows import page_of
from kosmos.data.sources.since import as_drawn
from kosmos.data.sources.weights import weight_of
from kosmos.errors import SampleError


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
    """The row's own id, or what it has under one of ``OTHER_IDS``; None where it has none."""
    files: Mapping[Path, str]
    """What the row calls each of the files that it names."""


OTHER_IDS = ("question_id", "questionId", "qid", "sample_id", "uid")
"""Columns by which benchmarks call their rows, the first that is there."""
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


def columns_of(table: Table, index: int) -> Collection[str]:
    """The columns of a row, used or not. A table that reads no more columns than are used has a method
    ``every_column``. Raises SampleError where the row cannot be read."""
    every = getattr(table, "every_column", None)
    columns: Collection[str] = table.row(index).keys() if every is None else every(index)
    return columns


def row_nbytes(table: Table) -> NDArray[np.float64] | None:
    """What each row takes where it lies, without reading any: [rows]. Of rows that are read in blocks it is the mean of
    their block. A table that knows it of each row has a method of this name. None where nothing is known."""
    of_rows = getattr(table, "row_nbytes", None)
    if of_rows is not None:
        known = of_rows()
        return None if known is None else np.asarray(known, np.float64)
    if (blocks := table.row_blocks()) is None:
        return None
    counts = np.diff(blocks.ends, prepend=0)
    return np.repeat(blocks.nbytes / np.maximum(1, counts), counts)


@dataclass(eq=False, repr=False)
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
    has_time: bool = False
    """Whether media of its rows have time, so that a row may be of a piece of one."""
    refuses_pieces: bool = True
    """Whether all rows of pieces that are known as such are refused. Runs that were begun earlier have learned some."""
    reads_more: bool = True
    """Whether all is read that runs which were begun earlier did not read (``kosmos.data.sources.since``)."""
    lacking: tuple[str, ...] = ()
    """Later rules of reading than the run has that was begun earlier (``kosmos.train.order.LATER``)."""
    weighs: bool = True
    """Whether its rows are asked what they weigh: those that are only scored are not."""

    rated: tuple[str, ...] = ()
    """Modalities whose processors read the rates that rows state of files."""
    by_place: bool = False
    """Whether a share of its rows is held out by their numbers in the table, which are others where files are added."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self):,} documents)"

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

    def nbytes(self) -> NDArray[np.float64] | None:
        """What each document takes where it lies: [documents]. None where nothing is known without reading them."""
        found = row_nbytes(self.table)
        return None if found is None else found[self.rows]

    def fingerprint(self) -> str:
        """What tells these rows from others, by their ids, or else by the files that they lie in."""
        return self.identity

    def document(self, index: int) -> Document:
        """The document of row ``index``. Raises SampleError, which names its origin, where it cannot be used."""
        row, origin = int(self.rows[index]), self.origin(index)
        try:
            with as_drawn(refuses_pieces=self.refuses_pieces, reads_more=self.reads_more, lacking=self.lacking):
                held = self.table.row(row)
                page = page_of(self.layout, held)
                with leaving_out(are=page is not None and page.between is not None) as lost:
                    segments, rejected = self._both(held, self.table.root(row))
                _check_lost(lost, segments, rejected)
            references = self.layout.references(held)
            weight = weight_of(held, self.layout.columns) if self.weighs else 1.0
            segments = without_rates(segments, self.rated)
            self._check(segments)
            if rejected:
                rejected = without_rates(rejected, self.rated)
                self._check(rejected)
        except SampleError as error:
            raise type(error)(f"{origin}: {error}{self._root_advice(error, row)}") from error
        if page is not None and not rejected:
            causes = tuple(map(str, lost))
            return PageDocument(
                origin, segments, references, weight, between=page.between, lost=causes, is_cut=page.is_cut
            )
        goes_on = self.one_end and self.cuts_texts and bool(self.table.goes_on(row))  # type: ignore[attr-defined]
        return Document(origin, segments, references, weight, goes_on, rejected)

    def _both(self, row: Row, root: Path) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
        """The segments of a row, and those of the worse one where it is a pair."""
        both: Callable[[Row, Path], Any] | None = getattr(self.layout, "both", None)
        return (self.layout.segments(row, root), ()) if both is None else both(row, root)

    def _root_advice(self, error: SampleError, row: int) -> str:
        """What to do, behind a message, where a file that the row names is not there and no folder was named."""
        if self.root_field and isinstance(error, OutsideRootError):
            return f" ({self.root_field})"
        if (
            not self.root_field
            or not isinstance(error, NoSuchFileError)
            or isinstance(error, MisspeltFileError | NotInSampleError)
        ):
            return ""
        return (
            f"; if the media are in another folder than {self.table.root(row).absolute()}, set {self.root_field} to it"
        )

    def names(self, index: int) -> Names:
        """What the data call document ``index``. Raises SampleError where its row cannot be read."""
        number = int(self.rows[index])
        row, root = self.table.row(number), self.table.root(number)
        identity = self._identity(row, number)
        files = {file: name for name in texts_in(row) if (file := _file_of(name, root)) is not None}
        name = self.origin(index).removeprefix(f"{self.folder}/")
        return Names(name, identity if isinstance(identity, str | int) else None, files)

    def id_of(self, index: int) -> Any:
        """The own id of document ``index``, as ``names`` tells it. Raises SampleError where its row cannot be read."""
        number = int(self.rows[index])
        return self._identity(self.table.row(number), number)

    def _identity(self, row: Row, number: int) -> Any:
        """The row's own id; where it has none, and no column is named as such, what it calls so otherwise. That tells
        its answer from others and nothing more: which rows are held out hangs on ``id`` alone."""
        if "id" in self.layout.columns or row.get("id") is not None:
            return row.get(self.layout.columns.get("id", "id"))
        there = columns_of(self.table, number)
        other = next((name for name in OTHER_IDS if name in there), None)
        return None if other is None else row_with(self.table, number, other).get(other)

    def value(self, index: int, path: str) -> Any:
        """What the row of document ``index`` has in a column, used or not. Raises SampleError where it has none."""
        return look_up(row_with(self.table, int(self.rows[index]), path), path)

    def _check(self, segments: tuple[Segment, ...]) -> None:
        if not segments:
            raise SampleError("no text and no media")
        size = sum(_nbytes(s.text) for s in segments if isinstance(s, Text))
        if size > self.max_text_bytes:
            raise SampleError(f"{size:,} bytes of text, over the limit of {self.max_text_bytes:,} (max_text_bytes)")


def _check_lost(lost: Sequence[SampleError], segments: Sequence[Segment], rejected: Sequence[Segment]) -> None:
    """Raises SampleError where a row has lost all media that it had, or is a pair."""
    if lost and (rejected or not any(isinstance(segment, Media | StoredMedia) for segment in segments)):
        raise type(lost[0])(none_left([str(error) for error in lost])) from lost[0]


def _nbytes(text: str) -> int:
    """Of UTF-8, of which no whole copy is made: the text may be too large."""
    return sum(len(text[begin : begin + _PART].encode()) for begin in range(0, len(text), _PART))


def _file_of(name: str, root: Path) -> Path | None:
    """The file below ``root`` that a text names, if it does."""
    if len(name) > MAX_NAME:
        return None
    try:
        return resolve(root, name)
    except SampleError:
        return None


def unweighed(source: Source) -> Source:
    """The source as one that is only scored."""
    return replace(source, weighs=False) if isinstance(source, RowSource) else source
