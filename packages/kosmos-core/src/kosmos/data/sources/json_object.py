"""JSON files that are one object: around a list of rows, as DocVQA and SQuAD have them, or of rows by name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kosmos.data.open_files import open_rows
from kosmos.data.sources.chat_turns import OPENAI, SHAREGPT
from kosmos.data.sources.columns import did_you_mean
from kosmos.data.sources.file_names import rows_suffix
from kosmos.data.sources.json_pieces import BEGIN, PIECE, JsonText, Readable
from kosmos.data.sources.source import Table
from kosmos.data.sources.time_names import time_name
from kosmos.data.sources.well_known import is_medium
from kosmos.data.unpacked import unpacked, without_packing
from kosmos.errors import DataError, SampleError
from kosmos.names import listed

MOST_LOOKED_AT = 64 << 20
"""Bytes of a file that are looked at for what an error says."""
_NAMES = ("name", "id", "key", "row_name")
"""What the names of rows may be called, the first that the rows have not."""


def listed_under(text: JsonText, field: str) -> Iterator[tuple[int, int]]:
    """First byte, and the one behind the last, of each element of the list under a key of an object, which is next.

    Raises:
        ValueError: the object breaks off, or is no JSON.
        DataError: it has no such key, or no list there.
    """
    there: dict[str, bool] = {}
    for key in text.keys():  # noqa: SIM118  no mapping
        is_list = text.skip() == "["
        if key == field and field not in there and is_list:
            yield from text.elements()
        else:
            text.pass_by()
        there.setdefault(key, is_list)
    if field not in there:
        raise DataError(f"options.field: no {field!r} in the object of the file{did_you_mean(field, there)}")
    if not there[field]:
        lists = [key for key, is_list in there.items() if is_list]
        advice = f"; lists are under {listed(lists)}" if lists else ""
        raise DataError(f"options.field: expected a list of rows under {field!r}{advice}")


_NAMED = "write a row for each that names it, with clip: [start, end] (docs: Use your own data, Transcripts with times)"
_OF_PIECES = frozenset(
    "id text word sentence caption transcript transcription translation utterance label speaker lang language".split()
)
"""Keys of what is said in a piece of a medium, and by whom."""


class _Value(NamedTuple):
    """What stands under a key of an object."""

    key: str
    is_rows: bool
    """Whether it is a list of objects, and no chat."""
    keys: frozenset[str] | None
    """Of the object that it is; None where it is none."""
    has_times: bool = False
    """Whether it is rows that have a start and an end, and name no file."""
    is_of_pieces: bool = False
    """Whether they are of one medium, which is named nowhere: they have nothing else that is a text or a name."""
    pieces: str = ""
    """The key of the first row under which its own pieces are listed, with their times; empty where there is none."""


def told_of_file(path: Path) -> str:
    """What to do about a file that is one object, and no list of rows; empty where it is none. For messages."""
    found: list[_Value] = []
    try:
        with open_rows(path) as stream:
            begin = BEGIN.match(stream.read(PIECE))
            if begin is None or begin[1] != b"{":
                return ""
            stream.seek(begin.end())
            head = _Head(stream)
            text = JsonText(head)
            try:
                found.extend(_value(text, key) for key in text.keys())  # noqa: SIM118  no mapping
                text.finish("object")
            except (ValueError, RecursionError):
                if not head.is_cut:
                    return ""
    except OSError:
        return ""
    return _told(found, path)


def told_of_row(row: Mapping[str, Any], path: Path) -> str:
    """As ``told_of_file``, of a file that has this row alone."""
    return _told([_value_of(key, value) for key, value in row.items()], path)


def told_of_rows(table: Table, path: Path, field: str) -> str:
    """What to do about rows of which none can be read; empty where nothing is known. For messages.

    Args:
        path: of their file.
        field: the key that they stand under in it; empty where none was named.
    """
    if not field and (advice := told_of_file(path)):
        return advice
    with suppress(SampleError):
        if len(table) and (key := _key_of_pieces(table.row(0))):
            return f"; under {key!r} are pieces of a row's medium with their times; {_NAMED}"
    return ""


def _told(values: Sequence[_Value], path: Path) -> str:
    if nested := next((value for value in values if value.pieces), None):
        return (
            f"; the file is one object, and under {nested.key!r} are media, each with its pieces and their times under "
            f"{nested.pieces!r}; {_NAMED}"
        )
    if pieces := next((value.key for value in values if value.is_of_pieces), ""):
        return (
            f"; the file is one object, and under {pieces!r} are pieces of one medium, which is named nowhere; {_NAMED}"
        )
    if lists := [value.key for value in values if value.is_rows]:
        under = f"{lists[0]!r}" if len(lists) == 1 else f"one of {listed(map(repr, lists), at_most=4)}"
        renamed = "" if rows_suffix(path.name) == ".json" else f"call the file {path.stem}.json, and "
        return (
            f"; the file is one object, and rows are expected as a list: if they are those under {under}, {renamed}"
            f"name it (options: {{field: {lists[0]}}})"
            + (f"; if they are pieces of one medium, {_NAMED}" if any(value.has_times for value in values) else "")
        )
    keys = [value.keys for value in values if value.keys is not None]
    if not keys or len(keys) < len(values):
        return ""
    name = next((name for name in _NAMES if not any(name in its for its in keys)), _NAMES[-1])
    file, made = shlex.quote(str(unpacked(path))), shlex.quote(f"{without_packing(path.name).rpartition('.')[0]}.jsonl")
    names = listed((value.key for value in values), at_most=2)
    return (
        f"; the file is one object of rows by name ({names}), and no list; "
        f"write a row a line (python -c \"import json, sys; [print(json.dumps({{'{name}': k, **v}})) for k, v in "
        f'json.load(sys.stdin.buffer).items()]" < {file} > {made})'
    )


def _value(text: JsonText, key: str) -> _Value:
    begins = text.skip()
    if begins == "{":
        return _value_of(key, text.value())
    if begins != "[":
        text.pass_by()
        return _value_of(key, None)
    first: list[Any] = []
    for begin, end in text.elements():
        if not first:
            first.append(text.parsed(begin, end))
    return _value_of(key, first)


def _value_of(key: str, value: Any) -> _Value:
    is_rows = isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)
    is_rows = is_rows and value[0].keys().isdisjoint((*OPENAI, *SHAREGPT))
    has_times = is_rows and _has_times(value[0])
    of_pieces = has_times and not any(map(_is_of_rows, *zip(*value[0].items(), strict=True)))
    keys = frozenset(value) if isinstance(value, Mapping) else None
    return _Value(key, is_rows, keys, has_times, of_pieces, _key_of_pieces(value[0]) if is_rows else "")


def _key_of_pieces(row: Mapping[str, Any]) -> str:
    """Under which key of a row the pieces of its medium are listed, each with its times; empty where there are none."""
    lists = {key: value for key, value in row.items() if isinstance(value, list) and value}
    return next((k for k, found in lists.items() if isinstance(found[0], Mapping) and _has_times(found[0])), "")


def _has_times(row: Mapping[str, Any]) -> bool:
    sides = {of.side for name in row if (of := time_name(name)) is not None}
    return {"start", "end"} <= sides and not any(map(is_medium, row.values()))


def _is_of_rows(key: str, value: Any) -> bool:
    """Whether a key says that rows are no pieces of one medium: what each is of, or what it asks."""
    if key.casefold() in _OF_PIECES or time_name(key) is not None:
        return False
    return isinstance(value, str) or key.casefold().endswith("id")


class _Head:
    """The beginning of a stream."""

    def __init__(self, stream: Readable) -> None:
        self._stream, self._left = stream, MOST_LOOKED_AT
        self.is_cut = False
        """Whether there was more."""

    def read(self, nbytes: int) -> bytes:
        read = self._stream.read(min(nbytes, self._left))
        self._left -= len(read)
        self.is_cut = self.is_cut or (not self._left)
        return read

    def tell(self) -> int:
        return self._stream.tell()
