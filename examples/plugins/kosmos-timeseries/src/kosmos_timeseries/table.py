"""Read a table of numbers from text: comma, semicolon or tab between columns, one line a time step.

A first line that is not of numbers names the columns; a first column named as one of ``TIME_COLUMNS`` is left out.
"""

from __future__ import annotations

import csv
import io
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from kosmos import SampleError

TIME_COLUMNS = frozenset({"time", "timestamp", "date", "datetime", "t"})
MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})
DELIMITERS = ",;\t"


def parse_table(text: str, max_values: int) -> NDArray[np.float64]:
    """[rows, columns]; NaN where a field is empty or says that it is missing.

    Raises:
        SampleError: no rows, rows of unequal length, a field that is no number, more than ``max_values``.
    """
    first = text.lstrip("\ufeff\r\n").partition("\n")[0]
    delimiter = max(DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")), delimiter=delimiter)
    try:
        rows = [
            (reader.line_num, fields) for fields in islice(reader, max_values + 2) if any(f.strip() for f in fields)
        ]
    except csv.Error as error:
        raise SampleError(f"table, line {reader.line_num}: {error}") from error
    skip = 0
    if rows and not all(_is_number(field) for field in rows[0][1]):
        skip = int(rows[0][1][0].strip().lower() in TIME_COLUMNS)
        rows = rows[1:]
    columns = len(rows[0][1]) - skip if rows else 0
    if not columns:
        raise SampleError("table holds no row of numbers")
    if columns * len(rows) > max_values:
        raise SampleError(f"table has more than {max_values} values (max_values)")
    values = np.empty((len(rows), columns))
    for number, (line, fields) in enumerate(rows):
        if len(fields) - skip != columns:
            raise SampleError(f"table, line {line}: expected {columns + skip} fields as before, got {len(fields)}")
        values[number] = [_number(field, line) for field in fields[skip:]]
    return values


def _number(field: str, line: int) -> float:
    word = field.strip()
    if word.lower() in MISSING:
        return float("nan")
    try:
        return float(word)
    except ValueError as error:
        raise SampleError(f"table, line {line}: {word[:40]!r} is no number") from error


def _is_number(field: str) -> bool:
    try:
        _number(field, 1)
    except SampleError:
        return False
    return True
