"""Names of columns: nested paths such as ``answers.text[0]``, renames, and the nearest name to a wrong one."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from kosmos import names
from kosmos.data.document import FileSpan
from kosmos.data.sources.json_values import read_json_text
from kosmos.data.sources.token_numbers import DECODE, are_token_numbers
from kosmos.errors import ConfigError, DataError, SampleError

Row = Mapping[str, Any]
"""One row of a table: column to value."""

_STEP = re.compile(r"(?:^|\.)(?P<key>[^.\[\]]+)|\[(?P<index>-?\d+)\]")


@cache
def parse_path(path: str) -> tuple[str | int, ...]:
    """The steps of a nested path: ``answers.text[0]`` is ``("answers", "text", 0)``.

    Raises:
        ConfigError: it is no path.
    """
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            break
        steps.append(match["key"] if match["key"] is not None else int(match["index"]))
        position = match.end()
    if not steps or position < len(path) or isinstance(steps[0], int):
        raise ConfigError(f"column {path!r}: expected a name such as text, answers.text[0] or objects.bbox")
    return tuple(steps)


def look_up(row: Row, path: str) -> Any:
    """The value at a nested path; a column of exactly that name goes first.

    A path leads into a text, too, that is JSON of an object or a list: ``ground_truth.gt_parse`` of Donut's rows.

    Raises:
        SampleError: the row has no such value.
    """
    if path in row:
        return row[path]
    value: Any = row
    for number, step in enumerate(parse_path(path)):
        why = ""
        if isinstance(value, str):
            value, why = _within(value, path, number)
        if isinstance(step, str):
            if not isinstance(value, Mapping) or step not in value:
                there = value if isinstance(value, Mapping) else ()
                raise SampleError(f"no column {path!r}{why}{did_you_mean(step, there)}")
            value = value[step]
        else:
            if not isinstance(value, Sequence) or isinstance(value, bytes):
                got = "a string" if why else kind_of(value)
                raise SampleError(f"column {path!r}: [{step}] needs a list, got {got}{why}")
            if not -len(value) <= step < len(value):
                raise SampleError(f"column {path!r}: [{step}] of a list of {len(value)}")
            value = value[step]
    return value


def _within(text: str, path: str, number: int) -> tuple[Any, str]:
    """What a text that stands before step ``number`` of a path says as JSON, and why it says nothing."""
    value, why = read_json_text(text)
    return value, f": {beginning(path, number)} {why}" if why else ""


def beginning(path: str, number: int) -> str:
    """The first ``number`` steps of a path, as a path."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in parse_path(path)[:number])
    return "".join(steps)[1:]


def top_column(path: str, columns: Collection[str]) -> str:
    """The column of the table that a nested path begins with."""
    # The common case first: this runs for every row at opening.
    return path if path.isidentifier() or path in columns else str(parse_path(path)[0])


def there(path: str, columns: Collection[str]) -> str:
    """As ``top_column``. Raises SampleError where the table has no such column."""
    if (top := top_column(path, columns)) not in columns:
        raise SampleError(f"no column {path!r}{did_you_mean(top, columns)}")
    return top


def nested_tops(paths: Iterable[str], columns: Collection[str]) -> set[str]:
    """The columns that some paths lead into, of which none is the path itself."""
    return {top for path in paths if (top := top_column(path, columns)) != path and top in columns}


def require_column(path: str, columns: Collection[str], what: str, advice: str = "", *, is_known: bool = False) -> None:
    """Raises DataError, with the nearest name and ``advice``, where a table has no column for ``path``.

    Args:
        is_known: whether ``advice`` says what is meant, so that the nearest name is another guess, and a worse one.
    """
    if (top := top_column(path, columns)) not in columns:
        near = there_are(columns) if is_known else did_you_mean(top, columns)
        raise DataError(f"{what}: no column {top!r}{near}{advice}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean caption?"``, or what there is, or nothing: the end of a message."""
    there = sorted(str(k) for k in known)
    if hint := names.did_you_mean(name, there):
        return f"; {hint}"
    return there_are(there)


def there_are(known: Iterable[str]) -> str:
    """``"; there are: id, text"``, or nothing: the end of a message."""
    there = sorted(str(k) for k in known)
    return f"; there are: {names.listed(there)}" if there else ""


def kind_of(value: Any) -> str:
    """A value's type in the words of JSON, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if _is_nan(value):
        return "NaN"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, list | tuple) and not value:
        return "an empty list"
    return _KINDS.get(type(value), type(value).__name__)


_KINDS: dict[type[Any], str] = {
    str: "a string", bytes: "bytes", FileSpan: "bytes", list: "a list", tuple: "a list", dict: "an object",
}  # fmt: skip


def is_empty(value: Any) -> bool:
    """Whether a value says nothing: null, or a text without a letter."""
    return value is None or (isinstance(value, str) and not value.strip())


BY_TEMPLATE = '; a template writes it as JSON ("{COLUMN}")'
"""Advice for ``text_value``, of what is learned or asked."""


def text_value(value: Any, what: str, advice: str = "") -> str:
    """A value as text; numbers are written out as Python has them, lists of plain values joined with ``, ``.

    Args:
        what: its name in errors.
        advice: what to do about an object or a list that is no text, for the end of the error.

    Raises:
        SampleError: null, NaN (as tables mark what is missing), bytes, nested, the tokens of another tokenizer, or with
            characters that no text has.
    """
    if isinstance(value, str):
        return checked_text(value, what)
    if isinstance(value, bool | int | float) and not _is_nan(value):
        return str(value)
    if isinstance(value, list | tuple) and value and all(isinstance(v, str | int | float) for v in value):
        if any(map(_is_nan, value)):
            raise SampleError(f"{what}: expected text, got a list with NaN")
        if are_token_numbers(value, what):
            raise SampleError(f"{what}: these look like token numbers of another tokenizer, and {DECODE}")
        return checked_text(", ".join(map(str, value)), what)
    has_json = isinstance(value, Mapping | list | tuple) and bool(value)
    raise SampleError(f"{what}: expected text, got {kind_of(value)}{advice if has_json else ''}")


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def checked_text(value: Any, what: str) -> str:
    """``value`` where it is a string that can be encoded and holds no NUL.

    Raises:
        SampleError: otherwise.
    """
    if not isinstance(value, str):
        raise SampleError(f"{what}: expected text, got {kind_of(value)}")
    if "\0" in value:
        raise SampleError(f"{what}: holds a NUL character at {value.index(chr(0))}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise SampleError(f"{what}: holds a lone surrogate at {error.start}") from error
    return value


def texts_in(value: Any) -> Iterator[str]:
    """The texts in a value of a row, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from texts_in(inner)
