"""Rows of CSV and TSV files that have nothing in any column: they are no rows, and are counted."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kosmos.data.open_files import open_rows
from kosmos.data.sources.delimited import OF_CSV, DelimitedTable

_NOTHING = b' \t\r\n"'
"""Of such a line between tabs: what stands between columns and around fields."""
_BOM = b"\xef\xbb\xbf"


def empty_rows(table: object) -> Iterator[str]:
    """A line for each file that has such rows, of a table of files and of those that it is made of."""
    for part in getattr(table, "tables", ()):
        yield from empty_rows(part)
    if (own := getattr(table, "table", None)) is not None:
        yield from empty_rows(own)
    if isinstance(table, DelimitedTable):
        for path in table.files:
            if lines := [*_lines(table, path)]:
                are = "row has" if len(lines) == 1 else "rows have"
                yield (
                    f"{path}: {len(lines):,} {are} nothing in any column, and no row is made of that; the first is in "
                    f"line {lines[0]:,}"
                )


def _lines(table: DelimitedTable, path: Path) -> Iterator[int]:
    """Numbers of the lines between the rows that hold more than a line's end."""
    marks = {*table.delimiter.encode(), *b'"'}
    # Behind each row that the next one does not follow at once; the names of the columns are in front of all.
    after = np.flatnonzero(table.offset[1:] > table.end[:-1]).tolist()
    last = [*after, len(table) - 1]
    begins = [0, *(table.end.item(row) for row in after), *table.end[-1:].tolist()]
    ends = [*table.offset[:1].tolist(), *(table.offset.item(row + 1) for row in after), -1]
    with open_rows(path) as stream:
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            line = 1
            if number:
                row = last[number - 1]
                stream.seek(table.offset.item(row))
                line = table.line.item(row) + stream.read(begin - table.offset.item(row)).count(b"\n")
            stream.seek(begin)
            content = stream.read() if end < 0 else stream.read(end - begin)
            for text, is_empty in _parts(content.removeprefix(_BOM), table.delimiter):
                if is_empty and not marks.isdisjoint(text):
                    yield line
                line += text.count(b"\n")


def _parts(content: bytes, delimiter: str) -> Iterator[tuple[bytes, bool]]:
    """The bytes of each row, and whether it has nothing in any column. Between tabs a line is a row, elsewhere lines
    may end in quotes."""
    if delimiter not in OF_CSV:
        yield from ((text, not text.strip(_NOTHING)) for text in io.BytesIO(content))
        return
    taken: list[bytes] = []

    def lines() -> Iterator[str]:
        for line in io.BytesIO(content):
            taken.append(line)
            yield line.replace(b"\r", b" ").decode("latin-1")  # as where rows are found

    for fields in csv.reader(lines(), delimiter=delimiter):
        yield b"".join(taken), not any(map(str.strip, fields))
        taken.clear()
