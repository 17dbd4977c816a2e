"""JSON files that are one list of rows, as LLaVA, LLaMA-Factory and ms-swift have them, read row by row like JSONL."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kosmos.data.open_files import forget, open_rows
from kosmos.data.sources.columns import Row
from kosmos.data.sources.encoding import refuse_wide
from kosmos.data.sources.jsonl import BLANK, MAX_ROW_BYTES, JsonlTable, index_jsonl, parse_row
from kosmos.data.sources.scan_cache import ScanRecord
from kosmos.errors import DataError, SampleError

PIECE = 4 << 20
"""Bytes that are parsed at once; more where a row is longer."""
_EXPECTED = "a list of rows ([{...}, {...}]) or a row a line"
_INDEX = "; it is LLaMA-Factory's list of data sets: name the file of one as a source, and its columns (columns: {...})"
_BLANK = re.compile(r"[ \t\r\n]*")
_BEGIN = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\[")
_parse = json.JSONDecoder(parse_int=float, strict=False).raw_decode
"""Places are all that is asked of it; what a row holds is for ``parse_row`` to judge, row by row."""
_CUT = 16
"""Characters before the end of what was read in which an error may come of the cut: more than any word of JSON has."""
MOST_BYTES = 4 * MAX_ROW_BYTES
"""Most that one row may take before the file is held to be damaged in it."""


class JsonListTable(JsonlTable):
    """The elements of a list in a JSON file (a ``Table``), by byte offset."""

    are_lines = False

    def origin(self, index: int) -> str:
        return f"{self.files[0]}:row {self.line.item(index)}"  # a list is often one line


def begins_list(path: Path) -> bool:
    """Whether a file begins as a list does. False where it cannot be read."""
    try:
        with open_rows(path) as stream:
            return _BEGIN.match(stream.read(PIECE)) is not None
    except OSError:
        return False


def hold_lines(paths: Sequence[Path]) -> bool:
    """Whether files are JSONL by another name, by a glance at each: of the first two lines, each an object by itself,
    of the others, which may be empty, one. False where one cannot be read."""
    return all(_begins_lines(path, 0 if number else 2) for number, path in enumerate(paths))


def _begins_lines(path: Path, at_least: int) -> bool:
    try:
        with open_rows(path) as stream:
            rows = (line for line in iter(lambda: stream.readline(MAX_ROW_BYTES + 1), b"") if line.strip(BLANK))
            found = list(islice(rows, max(at_least, 1)))
        return len(found) >= at_least and all(map(parse_row, found))
    except (OSError, SampleError):
        return False


def index_json(path: Path) -> JsonlTable:
    """Find the rows of a JSON file: the elements of its list or, where it holds none, its lines.

    Raises:
        DataError: it cannot be read, is UTF-16, is neither, or its list breaks off or is no JSON.
    """
    forget(path)
    try:
        with open_rows(path) as stream:
            head = stream.read(PIECE)
            if not head:
                raise DataError(f"{path}: is empty (0 bytes); expected {_EXPECTED}")
            refuse_wide(head, path)
            begin = _BEGIN.match(head)
            if begin is None:
                return _lines_of(path, stream)
            record = ScanRecord("places of the rows of a list", [path])
            if (known := record.read()) is None:
                stream.seek(begin.end())
                found = array("q", chain.from_iterable(_places(stream)))
                known = {"places": np.ascontiguousarray(np.array(found, np.int64).reshape(-1, 2).T)}
                record.write(known)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DataError(f"{path}: {error}; without its rest nobody can say where rows end") from error
    begins, ends = known["places"]
    numbers = np.arange(len(begins), dtype=np.int64)
    return JsonListTable((path,), np.zeros(len(begins), np.int32), begins, ends, numbers)


def first_row(path: Path) -> Row:
    """The first row of a JSON or JSONL file. Raises ValueError, OSError or SampleError where there is none."""
    with open_rows(path) as stream:
        begin = _BEGIN.match(stream.read(PIECE))
        stream.seek(begin.end() if begin else 0)
        if begin is None:
            return parse_row(stream.readline(MAX_ROW_BYTES + 1))
        place, end = next(_places(stream), (0, 0))
        stream.seek(place)
        return parse_row(stream.read(end - place))


def _lines_of(path: Path, stream: BinaryIO) -> JsonlTable:
    """The lines of a file that is JSONL by another name."""
    stream.seek(0)
    first = next((line for line in iter(lambda: stream.readline(MAX_ROW_BYTES + 1), b"") if line.strip()), b"")
    try:
        parse_row(first)
    except SampleError as error:
        is_object = first.lstrip().startswith(b"{")
        around = "; of an object around a list of rows write the list alone into a file" if is_object else ""
        around = _INDEX if path.name == "dataset_info.json" else around
        raise DataError(f"{path}: expected {_EXPECTED}; its first line is neither ({error}){around}") from error
    return index_jsonl([path])


def _places(stream: BinaryIO) -> Iterator[tuple[int, int]]:
    """First byte, and the one behind the last, of each element of a list whose bracket has just been read.

    Raises:
        ValueError: the list breaks off, or is no JSON.
    """
    text = _Text(stream)
    if text.skip() != "]":
        yield text.element()
        while (found := text.skip()) == ",":
            text.place += 1
            text.skip()
            yield text.element()
        if found != "]":
            raise ValueError(f"not JSON: no comma and no end of the list at byte {text.base + text.place}")
    text.place += 1
    if text.skip():
        raise ValueError(f"not JSON: something behind the list at byte {text.base + text.place}")


class _Text:
    """What has been read of a file and not been parsed. A character is a byte: only places are of interest."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.base = stream, stream.tell()
        """Which byte of the file ``text`` begins with."""
        self.text, self.place = "", 0

    def more(self) -> bool:
        """Read on, twice as much as what is still waited for; False at the end of the file."""
        read = self.stream.read(max(PIECE, len(self.text) - self.place))
        self.text, self.base, self.place = self.text[self.place :] + read.decode("latin-1"), self.base + self.place, 0
        return bool(read)

    def skip(self) -> str:
        """Go to the next character that is no space, and tell it; "" at the end of the file."""
        while True:
            match = _BLANK.match(self.text, self.place)
            assert match is not None
            self.place = match.end()
            if self.place < len(self.text) or not self.more():
                return self.text[self.place : self.place + 1]

    def element(self) -> tuple[int, int]:
        """Parse a value, and tell where it is."""
        while True:
            try:
                _, end = _parse(self.text, self.place)
            except json.JSONDecodeError as error:
                said = error.msg.removesuffix(" at")
                end, reason = len(self.text), f"not JSON: {said} at byte {self.base + error.pos}"
                cut = error.msg.startswith("Unterminated string") or error.pos > end - _CUT
                if not cut or end - self.place > MOST_BYTES:
                    raise ValueError(reason) from None
            except RecursionError:
                raise ValueError(f"not JSON: nested too deeply at byte {self.base + self.place}") from None
            else:
                reason = ""
            # What ends with what was read may go on: a number may, and most errors are of a value that is cut.
            if not reason and end < len(self.text):
                break
            if not self.more():
                if reason:
                    raise ValueError(reason)
                break
        begin, self.place = self.place, end
        return self.base + begin, self.base + end
