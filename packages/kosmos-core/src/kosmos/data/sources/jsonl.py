"""JSONL files: the places of the rows are held, never the rows."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.sources.columns import Row, kind_of
from kosmos.data.sources.layouts import Layout
from kosmos.data.sources.open_files import forget, read_bytes
from kosmos.errors import DataError, SampleError

MAX_ROW_BYTES = 64 << 20
"""Most bytes of one line; base64 media in a chat are part of it."""

_BOM = b"\xef\xbb\xbf"


def parse_row(line: bytes) -> Row:
    """The object of one line.

    Raises:
        SampleError: no JSON object in UTF-8, or over the limit.
    """
    if len(line) > MAX_ROW_BYTES:
        raise SampleError(f"a row of more than {MAX_ROW_BYTES:,} bytes")
    try:
        row: Any = json.loads(line.removeprefix(_BOM).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise SampleError(f"not UTF-8 at byte {error.start} of the line") from error
    except RecursionError as error:
        raise SampleError("not JSON: nested too deeply") from error
    except json.JSONDecodeError as error:
        raise SampleError(f"not JSON: {error.msg} at column {error.colno}") from error
    except ValueError as error:
        raise SampleError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise SampleError(f"expected an object, got {kind_of(row)}")
    return row


def _row_or_error(line: bytes) -> Row | SampleError:
    try:
        return parse_row(line)
    except SampleError as error:
        return error


@dataclass(frozen=True, eq=False)
class JsonlTable:
    """The rows of JSONL files (a ``Table``), by byte offset."""

    files: tuple[Path, ...]
    file: NDArray[np.int32]
    """Which file a row is in: [rows]."""
    offset: NDArray[np.int64]
    """Where its line begins, in bytes: [rows]."""
    end: NDArray[np.int64]
    """Where it ends: [rows]."""
    line: NDArray[np.int64]
    """Its line, from 1: [rows]."""

    def __len__(self) -> int:
        return len(self.offset)

    def origin(self, index: int) -> str:
        return f"{self.files[self.file.item(index)]}:{self.line.item(index)}"

    def root(self, index: int) -> Path:
        return self._roots[self.file.item(index)]

    @cached_property
    def _roots(self) -> list[Path]:
        return [file.parent for file in self.files]

    def row(self, index: int) -> Row:
        try:
            begin, end = self.offset.item(index), self.end.item(index)
            line = read_bytes(self.files[self.file.item(index)], begin, min(end, begin + MAX_ROW_BYTES + 1))
        except OSError as error:
            raise SampleError(f"cannot be read ({error})") from error
        return parse_row(line)

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        del layout  # a line can only be read whole
        for number, path in enumerate(self.files):
            try:
                with path.open("rb") as stream:
                    for offset in self.offset[self.file == number]:
                        stream.seek(int(offset))
                        yield _row_or_error(stream.readline(MAX_ROW_BYTES + 1))
            except OSError as error:
                raise DataError(f"{path}: cannot be read ({error.strerror})") from error

    def row_blocks(self) -> None:
        return None

    def only(self, keep: NDArray[np.bool_]) -> JsonlTable:
        """The table of some of the rows; ``keep`` is bool [rows]."""
        return replace(self, file=self.file[keep], offset=self.offset[keep], end=self.end[keep], line=self.line[keep])


def index_jsonl(files: Sequence[Path]) -> JsonlTable:
    """Find the rows of JSONL files; blank lines are none.

    Raises:
        DataError: a file cannot be read.
    """
    found = [_lines(path) for path in files]
    number = np.repeat(np.arange(len(found), dtype=np.int32), [len(lines) for lines in found])
    begin, end, line = np.concatenate(found).T
    return JsonlTable(tuple(files), number, begin.copy(), end.copy(), line.copy())


def _lines(path: Path) -> NDArray[np.int64]:
    """First byte, byte behind the last and number of each line of a file that is not blank: [lines, 3]."""
    lines = array("q")  # 24 bytes a line, where a list of tuples would take 160
    begin, place, number, inside = 0, 0, 1, False
    forget(path)
    try:
        with path.open("rb") as stream:
            # Pieces of bounded size, so that a file without line ends does not fill the memory.
            while piece := stream.readline(1 << 20):
                if not inside and piece.strip(b" \t\r\n\xef\xbb\xbf"):
                    begin, inside = place, True
                place += len(piece)
                if piece.endswith(b"\n"):
                    if inside:
                        lines.extend((begin, place, number))
                    number, inside = number + 1, False
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if inside:
        lines.extend((begin, place, number))
    return np.array(lines, np.int64).reshape(-1, 3)
