"""Text files, cut into documents at blank lines where there are any, at line ends else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kosmos.data.file_state import CHANGED, state_at, states_of
from kosmos.data.open_files import forget, open_rows, read_bytes
from kosmos.data.sources.columns import Row, checked_text
from kosmos.data.sources.encoding import HEAD_BYTES, not_utf8, refuse_wide_text
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.scan_cache import ScanRecord
from kosmos.data.sources.shards import open_each
from kosmos.data.sources.splits import Split
from kosmos.errors import DataError, SampleError

CHUNK_CHARS = 2_000
"""Most characters of a document that is cut from a text file."""

MOST_LOOKED_AT = 16
"""Documents of which one tells how long the others are."""

_BOM = b"\xef\xbb\xbf"
_MAX_LINE = 1 << 20


@dataclass(frozen=True, eq=False)
class TextTable:
    """The documents of text files (a ``Table``), by byte range."""

    files: tuple[Path, ...]
    splits: tuple[Split | None, ...]
    """What the data say about each file: [files]."""
    file: NDArray[np.int32]
    """Which file a document is in: [documents]."""
    begin: NDArray[np.int64]
    """First byte: [documents]."""
    end: NDArray[np.int64]
    """Byte behind the last: [documents]."""
    line: NDArray[np.int64]
    """Its first line, from 1: [documents]."""
    states: NDArray[np.int64]
    """What the files were when they were cut, as ``states_of`` gives it: [files, 2]."""
    one_a_line: bool = False
    """Whether each is a line, and not a stretch of text."""

    def __len__(self) -> int:
        return len(self.begin)

    def origin(self, index: int) -> str:
        return f"{self.files[self.file[index]]}:{self.line[index]}"

    def root(self, index: int) -> Path:
        return self.files[int(self.file[index])].parent

    @property
    def cuts_texts(self) -> bool:
        """Whether files are cut into documents that follow one another."""
        return not self.one_a_line

    def goes_on(self, index: int) -> bool:
        """Whether its text does, in the next document."""
        return self.cuts_texts and index + 1 < len(self) and bool(self.file[index] == self.file[index + 1])

    def row(self, index: int) -> Row:
        begin, end, file = int(self.begin[index]), int(self.end[index]), self.file.item(index)
        path = self.files[file]
        try:
            data = read_bytes(path, begin, end, state_at(self.states, file))
            if len(data) < end - begin:
                raise SampleError(CHANGED)
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError as error:
                head = read_bytes(path, 0, HEAD_BYTES)
                raise SampleError(not_utf8(begin + error.start, "file", head)) from error
            if "\0" in text:
                refuse_wide_text(text, read_bytes(path, 0, HEAD_BYTES))
        except OSError as error:
            raise SampleError(f"cannot be read ({error})") from error
        return {"text": checked_text(text, "text")}

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        del layout  # the text says nothing about the row
        for index in range(len(self)):
            number = self.file[index]
            identity = f"{self.files[number].name}:{self.begin[index]}"
            yield {"text": "", "id": identity, "split": self.splits[number]}

    def row_blocks(self) -> None:
        return None

    def row_nbytes(self) -> NDArray[np.int64]:
        return self.end - self.begin

    def holds(self) -> tuple[()]:
        return ()

    def extent(self) -> None:
        return None  # nothing is read


def index_text(files: Sequence[Path], splits: Sequence[Split | None], chunk_chars: int = CHUNK_CHARS) -> TextTable:
    """Cut text files into documents. Every character is in exactly one, but for pieces of blank space alone.

    Args:
        splits: what the data say about each file.
        chunk_chars: most characters of a document.

    Raises:
        DataError: a file cannot be read.
    """
    for path in files:
        forget(path)
    states = states_of(files)
    record = ScanRecord(f"text in pieces of {chunk_chars}", files)
    if (known := record.read()) is None:
        found = open_each(files, lambda path: _pieces(path, chunk_chars))
        known = {
            "file": np.repeat(np.arange(len(found), dtype=np.int32), [len(pieces) for pieces in found]),
            "pieces": np.ascontiguousarray(np.concatenate([np.empty((0, 3), np.int64), *found]).T),
        }
        record.write(known)
    begin, end, line = known["pieces"]
    return TextTable(tuple(files), tuple(splits), known["file"], begin, end, line, states)


def index_prompts(path: Path) -> TextTable:
    """The lines of a text file as documents, without their ends; blank ones are none. Raises as ``index_text``."""
    forget(path)
    states = states_of([path])
    found, place = [], 0
    try:
        with open_rows(path) as stream:
            for number, line in enumerate(stream, start=1):
                bom = len(_BOM) if number == 1 and line.startswith(_BOM) else 0
                if line[bom:].strip():
                    found.append((place + bom, place + len(line.rstrip(b"\r\n")), number))
                place += len(line)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    begin, end, numbers = np.array(found, np.int64).reshape(-1, 3).T
    return TextTable((path,), (None,), np.zeros(len(found), np.int32), begin, end, numbers, states, one_a_line=True)


def _pieces(path: Path, chunk_chars: int) -> NDArray[np.int64]:
    """First byte, byte behind the last and first line of each document of a file: [documents, 3]."""
    try:
        with open_rows(path) as stream:
            bom = len(_BOM) if stream.read(len(_BOM)) == _BOM else 0
            stream.seek(bom)
            found = [(p.begin + bom, p.end + bom, p.line) for p in cut_text(stream, chunk_chars) if not p.blank]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return np.array(found, np.int64).reshape(-1, 3)


class Piece(NamedTuple):
    """A stretch of a text."""

    begin: int
    """First byte."""
    end: int
    """Byte behind the last."""
    line: int
    """Number of its first line, from 1."""
    blank: bool
    """Whether it is blank space alone."""


def cut_text(stream: BinaryIO, most: int) -> Iterator[Piece]:
    """Cut UTF-8 text into pieces of at most ``most`` characters that follow one another without a gap.

    A piece ends behind the last blank line that leaves it at least half full, else behind a line. A line
    that is itself too long is cut between characters, behind a space where there is one.
    """
    assert most > 0
    parts: list[bytes] = []  # of lines, gathered for the next piece
    chars, begin, line = 0, 0, 1
    for long_line in _lines(stream):
        for part in _cut_line(long_line, most):
            size = num_chars(part)
            while parts and chars + size > most:
                count = _good_cut(parts, most)
                text = b"".join(parts[:count])
                yield Piece(begin, begin + len(text), line, not text.strip())
                begin, line, parts = begin + len(text), line + text.count(b"\n"), parts[count:]
                chars -= num_chars(text)
            parts.append(part)
            chars += size
    if parts:
        text = b"".join(parts)
        yield Piece(begin, begin + len(text), line, not text.strip())


def _good_cut(parts: list[bytes], most: int) -> int:
    """How many parts make the next piece: up to the last blank line past its half, else all."""
    chars = sum(map(num_chars, parts))
    for count in range(len(parts), 0, -1):
        if 2 * chars < most:
            break
        if not parts[count - 1].strip():
            return count
        chars -= num_chars(parts[count - 1])
    return len(parts)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream with their ends; very long ones in parts, cut between characters."""
    held = b""
    while read := stream.readline(_MAX_LINE):
        text, held = held + read, b""
        if len(read) == _MAX_LINE and not read.endswith(b"\n"):
            starts = _char_starts(text[-4:])
            if len(starts):
                place = len(text) - 4 + int(starts[-1])
                text, held = text[:place], text[place:]
        yield text
    if held:
        yield held


def _cut_line(line: bytes, most: int) -> Iterator[bytes]:
    """Parts of a line of at most ``most`` characters each."""
    if len(line) <= most or num_chars(line) <= most:
        yield line
        return
    starts = _char_starts(line)
    first = begin = 0
    while len(starts) - first > most:
        end = int(starts[first + most])
        space = line.rfind(b" ", begin, end) + 1
        if 2 * (space - begin) >= end - begin:
            end = space
        yield line[begin:end]
        begin, first = end, int(np.searchsorted(starts, end))
    yield line[begin:]


def _char_starts(text: bytes) -> NDArray[np.int64]:
    """Where the characters of UTF-8 begin: all bytes but those that continue one."""
    return np.flatnonzero((np.frombuffer(text, np.uint8) & 0xC0) != 0x80)


def num_chars(text: bytes) -> int:
    """Characters of UTF-8, broken or not."""
    return len(text) if text.isascii() else len(_char_starts(text))


def longest_piece(source: object) -> str | None:
    """The longest of the first documents of a source of text files that go on; None where none of them does."""
    table: Any = getattr(source, "table", None)
    if not getattr(table, "cuts_texts", False):
        return None
    rows: NDArray[np.int64] = source.rows  # type: ignore[attr-defined]  # of a source that has a table
    texts = []
    for row in filter(table.goes_on, rows[:MOST_LOOKED_AT].tolist()):
        with suppress(SampleError):
            texts.append(table.row(row)["text"])
    return max(texts, key=len, default=None)
