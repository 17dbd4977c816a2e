"""CSV and TSV files: a row a line, but for line ends in quotes, and the names of the columns in the first."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kosmos.data.open_files import forget
from kosmos.data.sources.columns import Row
from kosmos.data.sources.encoding import not_utf8, refuse_wide
from kosmos.data.sources.jsonl import MAX_ROW_BYTES, JsonlTable
from kosmos.data.sources.scan_cache import ScanRecord
from kosmos.errors import DataError, SampleError

SUFFIXES = (".csv", ".tsv")
DELIMITERS = ",;\t"
"""Of CSV files: the one that the first line has most of."""
_BOM = b"\xef\xbb\xbf"
_NEVER_CLOSED = "a quote is opened and never closed"

csv.field_size_limit(MAX_ROW_BYTES)  # of the whole process; 128 KiB unless told, which a text may exceed


@dataclass(frozen=True, eq=False)
class DelimitedTable(JsonlTable):
    """The rows of a CSV or TSV file (a ``Table``), by byte offset. Values are texts, or null where there is nothing."""

    names: tuple[str, ...] = ()
    """The columns."""
    delimiter: str = ","

    def parse(self, line: bytes) -> Row:
        if len(line) > MAX_ROW_BYTES:
            raise SampleError(f"a row of more than {MAX_ROW_BYTES:,} bytes")
        try:
            fields = _fields(line.decode("utf-8"), self.delimiter)
        except UnicodeDecodeError as error:
            raise SampleError(not_utf8(error.start, "row")) from error
        if len(fields) != len(self.names):
            raise SampleError(f"expected {len(self.names)} columns, as in the first line, got {len(fields)}")
        return {name: field or None for name, field in zip(self.names, fields, strict=True)}


def index_delimited(path: Path) -> DelimitedTable:
    """Find the rows of a CSV or TSV file; blank lines are none.

    Raises:
        DataError: it cannot be read or is UTF-16, its first line has no names or one twice, or a quote is never closed.
    """
    forget(path)
    try:
        with path.open("rb") as stream:
            names, delimiter = _header(stream, path)
            record = ScanRecord(f"places of the rows of a table with {delimiter!r}", [path])
            if (known := record.read()) is None:
                found = array("q", chain.from_iterable(_places(stream, delimiter, path)))
                known = {"places": np.ascontiguousarray(np.array(found, np.int64).reshape(-1, 3)[1:].T)}
                record.write(known)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    begin, end, line = known["places"]
    return DelimitedTable((path,), np.zeros(len(begin), np.int32), begin, end, line, names, delimiter)


def columns_of(path: Path) -> tuple[str, ...]:
    """The names of the columns. Raises DataError as ``index_delimited``, OSError where it cannot be read."""
    with path.open("rb") as stream:
        return _header(stream, path)[0]


def _header(stream: BinaryIO, path: Path) -> tuple[tuple[str, ...], str]:
    """The columns, and what stands between them. ``stream`` is left at the file's first character."""
    first = stream.readline(MAX_ROW_BYTES)
    refuse_wide(first, path)
    place = len(_BOM) if first.startswith(_BOM) else 0
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(DELIMITERS, key=lambda mark: first.count(mark.encode()))
    stream.seek(place)
    begin, end, _ = next(_places(stream, delimiter, path), (0, 0, 0))
    stream.seek(begin)
    line = stream.read(end - begin)
    stream.seek(place)
    try:
        fields = [name.strip() for name in _fields(line.decode("utf-8"), delimiter)]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: {not_utf8(error.start, 'first line')}") from error
    except SampleError as error:
        raise DataError(f"{path}: the first line: {error}") from error
    if not any(fields):
        raise DataError(f"{path}: expected the names of columns in the first line, got nothing")
    names = tuple(name or f"column {number}" for number, name in enumerate(fields, 1))  # as an index of pandas has none
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{path}: the first line has column {twice!r} twice")
    return names, delimiter


def _places(stream: BinaryIO, delimiter: str, path: Path) -> Iterator[tuple[int, int, int]]:
    """First byte, byte behind the last, and number of the first line of each row, that of the columns' names first."""
    ends: list[int] = []  # of the lines of the row that is being read, in bytes from its first
    begin, number = stream.tell(), 1

    def lines() -> Iterator[str]:
        while line := stream.readline(MAX_ROW_BYTES):
            ends.append((ends[-1] if ends else 0) + len(line))
            if len(ends) > 1 and ends[-1] > MAX_ROW_BYTES:
                raise DataError(f"{path}:{number}: {_NEVER_CLOSED} within {MAX_ROW_BYTES:,} bytes")
            yield line.replace(b"\r", b" ").decode("latin-1")  # only places are of interest here

    last = (begin, begin)
    for fields in csv.reader(lines(), delimiter=delimiter):
        last = (begin, begin + ends[-1])
        if any(map(str.strip, fields)):
            yield *last, number
        begin, number = last[1], number + len(ends)
        ends.clear()
    stream.seek(last[0])
    if _is_open(stream.read(last[1] - last[0]), delimiter):
        raise DataError(f"{path}: {_NEVER_CLOSED}; the row begins at byte {last[0]:,}")


def _is_open(row: bytes, delimiter: str) -> bool:
    """Whether a row ends within quotes."""
    try:
        next(csv.reader(io.StringIO(row.decode("latin-1"), newline=""), delimiter=delimiter, strict=True), None)
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    return False


def _fields(text: str, delimiter: str) -> list[str]:
    """The values of a row. Raises SampleError where a line ends in it as no file ends its lines."""
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    if len(rows) > 1:
        raise SampleError("a carriage return stands in the row, outside of quotes; lines end in \\n or \\r\\n")
    return rows[0] if rows else []
