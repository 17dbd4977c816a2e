"""JSONL files: the places of the rows are held, never the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from kosmos.data.file_state import CHANGED, state_at, states_of
from kosmos.data.open_files import forget, open_rows, read_bytes
from kosmos.data.sources.columns import Row, kind_of
from kosmos.data.sources.encoding import not_utf8, refuse_wide
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.scan_cache import digest
from kosmos.data.sources.source import Extent
from kosmos.errors import DataError, SampleError

MAX_ROW_BYTES = 64 << 20
"""Most bytes of one line; base64 media in a chat are part of it."""

_BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n" + _BOM
"""Bytes of a line in which nothing can be read."""
_IS_BLANK = np.isin(np.arange(256), list(BLANK))
_NEWLINE = 10
_PIECE = 4 << 20
"""Bytes of a file that are searched for the ends of lines at once."""
_SPAN = 1 << 16
"""Rows whose places are taken from arrays at once."""
_decode = json.JSONDecoder().decode


def parse_row(line: bytes) -> Row:
    """The object of one line.

    Raises:
        SampleError: no JSON object in UTF-8, or over the limit.
    """
    if len(line) > MAX_ROW_BYTES:
        raise SampleError(f"a row of more than {MAX_ROW_BYTES:,} bytes")
    try:
        # Without the line's end, behind which an error would be one of the next line.
        row: Any = _decode(line.removeprefix(_BOM).rstrip(b" \t\r\n").decode("utf-8"))
    except UnicodeDecodeError as error:
        raise SampleError(not_utf8(error.start, "line")) from error
    except RecursionError as error:
        raise SampleError("not JSON: nested too deeply") from error
    except json.JSONDecodeError as error:
        raise SampleError(f"not JSON: {error.msg} at column {error.colno}") from error
    except ValueError as error:
        raise SampleError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise SampleError(f"expected an object, got {kind_of(row)}")
    return row


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
    states: NDArray[np.int64]
    """What the files were when their rows were found, as ``states_of`` gives it: [files, 2]."""
    are_lines: ClassVar[bool] = True
    """Whether a row ends where a line does."""

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
            line = self._line(self.file.item(index), self.offset.item(index), self.end.item(index))
        except OSError as error:
            raise SampleError(f"cannot be read ({error})") from error
        return self.parse(line)

    def _line(self, file: int, begin: int, end: int) -> bytes:
        """What stands there. Raises SampleError where a file that was written anew has no row there, and OSError.

        Rows may be added to lines, as is seen by those that were there.
        """
        path, known = self.files[file], state_at(self.states, file)
        if end - begin > MAX_ROW_BYTES:
            return read_bytes(path, begin, begin + MAX_ROW_BYTES + 1, known, may_grow=self.are_lines)  # to be refused
        first = max(begin - 1, 0)
        read = read_bytes(path, first, end, known, may_grow=self.are_lines)
        line = read[begin - first :]
        is_line = (
            not self.are_lines
            or (  # any piece of a text may pass for a row of a table
                read[: begin - first] in (b"", b"\n")
                and (line.endswith(b"\n") or read_bytes(path, end, end + 1) in b"\n")
            )
        )
        if len(line) < end - begin or not is_line:
            raise SampleError(CHANGED)
        return line

    def parse(self, line: bytes) -> Row:
        """The row of one line. Raises SampleError where it is none."""
        return parse_row(line)

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        del layout  # a line can only be read whole
        for number, path in enumerate(self.files):
            rows = np.flatnonzero(self.file == number)
            try:
                with open_rows(path) as stream:
                    for first in range(0, len(rows), _SPAN):
                        yield from self._read(stream, rows[first : first + _SPAN])
            except OSError as error:
                raise DataError(f"{path}: cannot be read ({error.strerror})") from error

    def _read(self, stream: BinaryIO, rows: NDArray[np.int64]) -> Iterator[Row | SampleError]:
        place = -1
        for begin, end in zip(self.offset[rows].tolist(), self.end[rows].tolist(), strict=True):
            if begin != place:
                stream.seek(begin)
            line = stream.read(min(end - begin, MAX_ROW_BYTES + 1))
            place = begin + len(line)
            try:
                yield self.parse(line)
            except SampleError as error:
                yield error

    def row_blocks(self) -> None:
        return None

    def row_nbytes(self) -> NDArray[np.int64]:
        return self.end - self.offset

    def holds(self) -> list[tuple[str, int]]:
        rows = np.bincount(self.file, minlength=len(self.files)).tolist()
        return list(zip(map(str, self.files), rows, strict=True))

    def extent(self) -> Extent:
        return Extent(self.files, digest(self.file, self.offset, self.end))

    def only(self, keep: NDArray[np.bool_]) -> JsonlTable:
        """The table of some of the rows; ``keep`` is bool [rows]."""
        return replace(self, file=self.file[keep], offset=self.offset[keep], end=self.end[keep], line=self.line[keep])


def index_jsonl(files: Sequence[Path]) -> JsonlTable:
    """Find the rows of JSONL files; blank lines are none.

    Raises:
        DataError: a file cannot be read, or is UTF-16.
    """
    states = states_of(files)
    found = [_lines(path) for path in files]
    number = np.repeat(np.arange(len(found), dtype=np.int32), [len(lines) for lines in found])
    begin, end, line = np.ascontiguousarray(np.concatenate(found).T)
    return JsonlTable(tuple(files), number, begin, end, line, states)


def mentions(path: Path, words: Sequence[bytes]) -> bool:
    """Whether a file holds any of some words anywhere, which takes a hundredth of the time of parsing it."""
    overlap = max(map(len, words)) - 1
    end = b""
    try:
        with open_rows(path) as stream:
            while piece := stream.read(_PIECE):
                if any(word in piece or word in end + piece[:overlap] for word in words):
                    return True
                end = (end + piece)[-overlap:]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return False


def _lines(path: Path) -> NDArray[np.int64]:
    """First byte, byte behind the last and number of each line of a file that is not blank: [lines, 3]."""
    found = [np.empty((0, 3), np.int64)]
    begin, place, number, inside = 0, 0, 1, False  # of the line that has not ended; whether it is not blank so far
    forget(path)
    try:
        with open_rows(path) as stream:
            # Pieces of bounded size, so that a file without line ends does not fill the memory.
            while piece := stream.read(_PIECE):
                if not place:
                    refuse_wide(piece, path)
                values = np.frombuffer(piece, np.uint8)
                if len(newlines := np.flatnonzero(values == _NEWLINE)):
                    kept = _not_blank(values, newlines)
                    kept[0] |= inside
                    ends = newlines + (place + 1)
                    begins = np.concatenate([[begin], ends[:-1]])
                    found.append(np.stack([begins, ends, np.arange(number, number + len(ends))], 1)[kept])
                    begin, number, inside = int(ends[-1]), number + len(ends), False
                inside = inside or bool(piece[max(0, begin - place) :].strip(BLANK))
                place += len(piece)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if inside:
        found.append(np.array([[begin, place, number]], np.int64))
    return np.concatenate(found)


def _not_blank(values: NDArray[np.uint8], newlines: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of the lines that end in a piece of a file, those of which something can be read there: [lines]."""
    begins = np.concatenate([[0], newlines[:-1] + 1])
    kept: NDArray[np.bool_] = ~_IS_BLANK[values[begins]]
    if not kept.all():  # mostly the first byte says it of all
        read = np.cumsum(~_IS_BLANK[values], dtype=np.int32)  # such bytes up to each, which is one of them or not
        kept = read[newlines] - read[begins] + ~_IS_BLANK[values[begins]] > 0
    return kept
