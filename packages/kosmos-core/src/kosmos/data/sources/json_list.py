"""JSON files that are one list of rows, as LLaVA, LLaMA-Factory and ms-swift have them, or an object around one: read
row by row like JSONL."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kosmos.data.file_state import states_of
from kosmos.data.open_files import forget, open_rows
from kosmos.data.sources import json_pieces
from kosmos.data.sources.columns import Row
from kosmos.data.sources.encoding import refuse_wide
from kosmos.data.sources.json_object import listed_under, told_of_file
from kosmos.data.sources.json_pieces import JsonText
from kosmos.data.sources.jsonl import BLANK, MAX_ROW_BYTES, JsonlTable, index_jsonl, parse_row
from kosmos.data.sources.scan_cache import ScanRecord
from kosmos.errors import DataError, SampleError

_EXPECTED = "a list of rows ([{...}, {...}]) or a row a line"
_INDEX = "; it is LLaMA-Factory's list of data sets: name the file of one as a source, and its columns (columns: {...})"


class JsonListTable(JsonlTable):
    """The elements of a list in a JSON file (a ``Table``), by byte offset."""

    are_lines = False

    def origin(self, index: int) -> str:
        return f"{self.files[0]}:row {self.line.item(index)}"  # a list is often one line


def begins_list(path: Path) -> bool:
    """Whether a file begins as a list does. False where it cannot be read."""
    try:
        with open_rows(path) as stream:
            begin = json_pieces.BEGIN.match(stream.read(json_pieces.PIECE))
            return begin is not None and begin[1] == b"["
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


def index_json(path: Path, field: str = "") -> JsonlTable:
    """Find the rows of a JSON file: the elements of its list or, where it holds none, its lines.

    Args:
        field: the key of the list, of a file that is an object around one.

    Raises:
        DataError: it cannot be read, is UTF-16, is neither, or its list breaks off or is no JSON.
    """
    forget(path)
    states = states_of([path])
    try:
        with open_rows(path) as stream:
            head = stream.read(json_pieces.PIECE)
            if not head:
                raise DataError(f"{path}: is empty (0 bytes); expected {_EXPECTED}")
            refuse_wide(head, path)
            begin = json_pieces.BEGIN.match(head)
            is_list = begin is not None and begin[1] == b"["
            if field and (begin is None or is_list):
                what = "it is a list itself; leave it out" if is_list else "it is no object"
                raise DataError(f"{path}: options.field names the list of an object, and {what}")
            if begin is None or not (is_list or field):
                return _lines_of(path, stream)
            record = ScanRecord(f"places of the rows of a list{f' under {field!r}' if field else ''}", [path])
            if (known := record.read()) is None:
                stream.seek(begin.end())
                found = array("q", chain.from_iterable(_places(stream, field)))
                known = {"places": np.ascontiguousarray(np.array(found, np.int64).reshape(-1, 2).T)}
                record.write(known)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except RecursionError as error:
        raise DataError(f"{path}: not JSON: nested too deeply") from error
    except ValueError as error:
        raise DataError(f"{path}: {error}; without its rest nobody can say where rows end") from error
    begins, ends = known["places"]
    numbers = np.arange(len(begins), dtype=np.int64)
    return JsonListTable((path,), np.zeros(len(begins), np.int32), begins, ends, numbers, states)


def first_row(path: Path, field: str = "") -> Row:
    """The first row of a JSON or JSONL file. Raises ValueError, OSError, DataError or SampleError where there is none.

    Args:
        field: as of ``index_json``.
    """
    with open_rows(path) as stream:
        begin = json_pieces.BEGIN.match(stream.read(json_pieces.PIECE))
        if begin is None or not (begin[1] == b"[" or field):
            stream.seek(0)
            return parse_row(stream.readline(MAX_ROW_BYTES + 1))
        stream.seek(begin.end())
        place, end = next(_places(stream, field), (0, 0))
        stream.seek(place)
        return parse_row(stream.read(end - place))


def _lines_of(path: Path, stream: BinaryIO) -> JsonlTable:
    """The lines of a file that is JSONL by another name."""
    stream.seek(0)
    first = next((line for line in iter(lambda: stream.readline(MAX_ROW_BYTES + 1), b"") if line.strip()), b"")
    try:
        parse_row(first)
    except SampleError as error:
        around = _INDEX if path.name == "dataset_info.json" else told_of_file(path)
        raise DataError(f"{path}: expected {_EXPECTED}; its first line is neither ({error}){around}") from error
    return index_jsonl([path])


def _places(stream: BinaryIO, field: str = "") -> Iterator[tuple[int, int]]:
    """First byte, and the one behind the last, of each element of a list that is next: by itself, or under a key of
    an object.

    Raises:
        ValueError: the list breaks off, or is no JSON, or the object holds no such list.
    """
    text = JsonText(stream)
    yield from listed_under(text, field) if field else text.elements()
    text.finish("object" if field else "list")
