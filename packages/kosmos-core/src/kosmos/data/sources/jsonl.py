"""JSONL files: the places of the rows are held, never the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.sources.columns import Row, kind_of
from kosmos.data.sources.layouts import Layout
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
    line: NDArray[np.int64]
    """Its line, from 1: [rows]."""

    def __len__(self) -> int:
        return len(self.offset)

    def origin(self, index: int) -> str:
        return f"{self.files[self.file[index]]}:{self.line[index]}"

    def root(self, index: int) -> Path:
        return self.files[int(self.file[index])].parent

    def row(self, index: int) -> Row:
        try:
            with self.files[self.file[index]].open("rb") as stream:
                stream.seek(int(self.offset[index]))
                line = stream.readline(MAX_ROW_BYTES + 1)
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

    def only(self, keep: NDArray[np.bool_]) -> JsonlTable:
        """The table of some of the rows; ``keep`` is bool [rows]."""
        return replace(self, file=self.file[keep], offset=self.offset[keep], line=self.line[keep])


def index_jsonl(files: Sequence[Path]) -> JsonlTable:
    """Find the rows of JSONL files; blank lines are none.

    Raises:
        DataError: a file cannot be read.
    """
    number: list[NDArray[np.int32]] = []
    offsets: list[NDArray[np.int64]] = []
    lines: list[NDArray[np.int64]] = []
    for position, path in enumerate(files):
        offset, line = _line_starts(path)
        number.append(np.full(len(offset), position, np.int32))
        offsets.append(offset)
        lines.append(line)
    return JsonlTable(tuple(files), np.concatenate(number), np.concatenate(offsets), np.concatenate(lines))


def _line_starts(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Byte offsets and numbers of the lines of a file that are not blank."""
    offsets: list[int] = []
    lines: list[int] = []
    place, number, inside = 0, 1, False
    try:
        with path.open("rb") as stream:
            # Pieces of bounded size, so that a file without line ends does not fill the memory.
            while piece := stream.readline(1 << 20):
                if not inside and piece.strip(b" \t\r\n\xef\xbb\xbf"):
                    offsets.append(place)
                    lines.append(number)
                    inside = True
                place += len(piece)
                if piece.endswith(b"\n"):
                    number, inside = number + 1, False
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return np.array(offsets, np.int64), np.array(lines, np.int64)
