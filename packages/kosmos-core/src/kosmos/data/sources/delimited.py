"""CSV and TSV files: a row a line, but for line ends in the quotes of CSV, and the names of the columns in the first.

Most tables with tabs are written without quotes, and a quote there is a letter, as that of ``5" nail``. Others are
written as CSV. So between tabs a line is always a row, and quotes are none of the text only where they are around the
whole of a field. So it is between any character but a comma and a semicolon, where a source names one.
"""

from __future__ import annotations

import csv
import io
import json
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kosmos.data.file_state import states_of
from kosmos.data.foreign import first_line
from kosmos.data.open_files import forget, open_rows
from kosmos.data.sources.columns import Row
from kosmos.data.sources.encoding import not_utf8, refuse_wide
from kosmos.data.sources.file_names import rows_suffix
from kosmos.data.sources.jsonl import BLANK, MAX_ROW_BYTES, JsonlTable, index_jsonl
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.scan_cache import ScanRecord
from kosmos.data.sources.since import lacks
from kosmos.data.sources.source import Extent
from kosmos.errors import DataError, SampleError

SUFFIXES = (".csv", ".tsv")
DELIMITERS = ",;\t"
"""Of CSV files: the one that the first line states or has most of."""
TAB = "\t"
_BOM = b"\xef\xbb\xbf"
_STATED = re.compile(rb'"?sep=([,;\t])"?[\r\n]+', re.IGNORECASE)
"""A line above the names by which Excel is told what stands between columns."""
_NEVER_CLOSED = "a quote is opened and never closed"
_LONE_RETURN = "a carriage return stands in the row, outside of quotes; lines end in \\n or \\r\\n"
_QUOTED = r'"[^"]*(?:""[^"]*)*"'
_WHOLE = re.compile(_QUOTED)
OF_CSV = (",", ";")
"""Between which a field in quotes may have several lines."""

csv.field_size_limit(MAX_ROW_BYTES)  # of the whole process; 128 KiB unless told, which a text may exceed


@dataclass(frozen=True, eq=False)
class DelimitedTable(JsonlTable):
    """The rows of a CSV or TSV file (a ``Table``), by byte offset.

    Values are texts, null where there is nothing, and of columns that hold lists what their JSON says.
    """

    names: tuple[str, ...] = ()
    """The columns."""
    delimiter: str = ","
    nested: tuple[str, ...] = ()
    """Those of the columns that hold lists or objects, written as JSON."""
    given: bool = False
    """Whether the source names the columns (``options.header``), and the first line is a row."""
    keeps_returns: bool = False
    """Whether lines within a field end as in the file, with a carriage return in those of Excel; else as all others."""

    def read_by(self, layout: Layout) -> DelimitedTable:
        """The table with lists in the columns in which the layout has a use for them."""
        nested = layout.nested(self.names)
        return replace(self, nested=tuple(name for name in self.names if name in nested))

    def is_in_quotes(self, index: int, value: str) -> bool:
        """Whether a value stands in quotes in the file, as who writes them means all that is between them."""
        try:
            line = self._line(self.file.item(index), self.offset.item(index), self.end.item(index))
        except (OSError, SampleError):
            return False
        line = line if self.keeps_returns else line.replace(b"\r\n", b"\n")
        return '"{}"'.format(value.replace('"', '""')).encode() in line

    def extent(self) -> Extent:
        found = super().extent()
        return found._replace(rows=f"{found.rows} {self.names} {self.delimiter}")  # which a source may say

    def parse(self, line: bytes) -> Row:
        if len(line) > MAX_ROW_BYTES:
            raise SampleError(f"a row of more than {MAX_ROW_BYTES:,} bytes")
        line = line.removeprefix(_BOM) if self.given else line
        try:
            text = line.decode("utf-8")
            fields = _fields(text, self.delimiter, len(self.names))
        except UnicodeDecodeError as error:
            raise SampleError(not_utf8(error.start, "row")) from error
        if len(fields) != len(self.names):
            where = "in options.header" if self.given else "in the first line"
            raise SampleError(f"expected {len(self.names)} columns, as {where}, got {len(fields)}")
        if not self.keeps_returns and "\r\n" in text[:-2]:
            fields = [field.replace("\r\n", "\n") for field in fields]
        row: dict[str, Any] = {name: field or None for name, field in zip(self.names, fields, strict=True)}
        for name in self.nested:
            if (field := row[name]) is not None:
                row[name] = _nested(field, name)
        return row


def index_delimited(path: Path, delimiter: str = "", header: Sequence[str] = ()) -> DelimitedTable:
    """Find the rows of a CSV or TSV file; blank lines are none.

    Args:
        delimiter: what stands between columns; empty is as the file tells.
        header: the columns, where the first line is a row already.

    Raises:
        DataError: it cannot be read or is UTF-16, its first line has no names or one twice, or a quote is never closed
            where lines may end in quotes.
    """
    forget(path)
    states = states_of([path])
    try:
        with open_rows(path) as stream:
            names, delimiter, first = _header(stream, path, delimiter, tuple(header))
            above = "" if first == 1 else f" from row {first} on"
            record = ScanRecord(f"places of the rows of a table with {delimiter!r}{above}", [path])
            if (known := record.read()) is None:
                is_csv = delimiter in OF_CSV
                found = _places_of_rows(stream, delimiter, path) if is_csv else _places_of_lines(path)
                found[0, found[0] == len(_BOM)] = 0  # a line begins where the one before ends, or the file does
                known = {"places": np.ascontiguousarray(found[:, first:])}
                record.write(known)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    begin, end, line = known["places"]
    number = np.zeros(len(begin), np.int32)
    return DelimitedTable(
        (path,),
        number,
        begin,
        end,
        line,
        states,
        names,
        delimiter,
        given=bool(header),
        keeps_returns=lacks("line ends"),
    )


def _nested(field: str, name: str) -> Any:
    """What a field says that begins like a list or an object of JSON; the field itself where it is any other text.

    Raises:
        SampleError: it begins so and is no JSON.
    """
    bare = field.strip()
    # A file may be called "[1] a.png".
    if not bare.startswith(("[", "{")) or not (bare.endswith(("]", "}")) or '"' in bare):
        return field
    try:
        return json.loads(bare)
    except (ValueError, RecursionError) as error:
        raise SampleError(f'{name}: no list or object of JSON, as ["a", "b"] is ({first_line(error)})') from error


def columns_of(path: Path) -> tuple[str, ...]:
    """The names of the columns. Raises DataError as ``index_delimited``, OSError where it cannot be read."""
    with open_rows(path) as stream:
        return _header(stream, path, "", ())[0]


def _header(stream: BinaryIO, path: Path, given: str, header: tuple[str, ...]) -> tuple[tuple[str, ...], str, int]:
    """The columns, what stands between them, and how many rows stand above the first of the table, theirs included.

    Args:
        given: what stands between them, where the source says it.
        header: the columns, where the source names them.

    ``stream`` is left at the file's first character.
    """
    first = stream.readline(MAX_ROW_BYTES)
    refuse_wide(first, path)
    place = len(_BOM) if first.startswith(_BOM) else 0
    stated = _STATED.fullmatch(first[place:]) if rows_suffix(path.name) == ".csv" else None
    if given:
        delimiter = given
    elif stated is not None:
        delimiter = stated[1].decode()
    elif rows_suffix(path.name) == ".tsv":
        delimiter = TAB
    else:
        delimiter = max(DELIMITERS, key=lambda mark: first.count(mark.encode()))
    if header:
        stream.seek(place)
        return header, delimiter, 0 if stated is None else 1
    stream.seek(place if stated is None else len(first))
    if delimiter not in OF_CSV:
        line = next((line for line in iter(lambda: stream.readline(MAX_ROW_BYTES), b"") if line.strip(BLANK)), b"")
    else:
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
    return names, delimiter, 1 if stated is None else 2


def _places_of_lines(path: Path) -> NDArray[np.int64]:
    """Of a table in which each line that is not blank is a row, as ``_places`` gives them: [3, rows]."""
    lines = index_jsonl([path])
    return np.stack([lines.offset, lines.end, lines.line])


def _places_of_rows(stream: BinaryIO, delimiter: str, path: Path) -> NDArray[np.int64]:
    """Of a table in which lines may end in quotes: [3, rows]."""
    found = array("q", chain.from_iterable(_places(stream, delimiter, path)))
    return np.array(found, np.int64).reshape(-1, 3).T


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

    last = (begin, begin, number)
    for fields in csv.reader(lines(), delimiter=delimiter):
        last = (begin, begin + ends[-1], number)
        if any(map(str.strip, fields)):
            yield last
        begin, number = last[1], number + len(ends)
        ends.clear()
    stream.seek(last[0])
    if _is_open(stream.read(last[1] - last[0]), delimiter):
        raise DataError(f"{path}:{last[2]}: {_NEVER_CLOSED}; the row that begins in this line takes all that follow")


def _is_open(row: bytes, delimiter: str) -> bool:
    """Whether a row ends within quotes."""
    try:
        next(csv.reader(io.StringIO(row.decode("latin-1"), newline=""), delimiter=delimiter, strict=True), None)
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    return False


def _fields(text: str, delimiter: str, columns: int = 0) -> list[str]:
    """The values of a row, of which ``columns`` are expected, if that is known.

    Raises:
        SampleError: a line ends in it as no file ends its lines.
    """
    if delimiter not in OF_CSV:
        return _in_a_line(text.removesuffix("\n").removesuffix("\r"), delimiter, columns)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    if len(rows) > 1:
        raise SampleError(_LONE_RETURN)
    return rows[0] if rows else []


def _in_a_line(line: str, delimiter: str, columns: int) -> list[str]:
    fields = line.split(delimiter)
    if '"' not in line and "\r" not in line:
        return fields
    if len(fields) != columns:  # else every delimiter parts two fields, whatever is around it
        fields = _field_between(delimiter).findall(delimiter + line)
    return [_without_quotes(field) for field in fields]


@cache
def _field_between(delimiter: str) -> re.Pattern[str]:
    between = re.escape(delimiter)
    return re.compile(rf"{between}({_QUOTED}(?={between}|\Z)|[^{between}]*)")


def _without_quotes(field: str) -> str:
    """What is in quotes that are around a whole field."""
    if field.startswith('"') and _WHOLE.fullmatch(field):
        return field[1:-1].replace('""', '"')
    if "\r" in field:
        raise SampleError(_LONE_RETURN)
    return field
