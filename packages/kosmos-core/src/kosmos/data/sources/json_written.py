"""Objects and lists of rows as what is learned: JSON on one line.

A table of arrow gives each of its objects every key that any of them has, null where it was not there. Such nulls are
not written: of what was no key the model would learn to write one. An object of nulls alone stands for one that is
missing, and is not written either; within a list it keeps its place, as ``{}``. A null that a row of
JSON has is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kosmos.data.sources.columns import Row, beginning, look_up, parse_path, text_value
from kosmos.errors import SampleError


class FilledRow(dict[str, Any]):
    """A row of a table whose objects have every key that any of them has."""


def is_structure(value: Any) -> bool:
    """Whether a value is an object, or a list with objects or lists, which no text stands for but JSON."""
    if isinstance(value, list | tuple):
        return any(isinstance(one, Mapping | list | tuple) for one in value)
    return isinstance(value, Mapping)


def written(row: Row, path: str, value: Any) -> str:
    """As ``text_value``, of what a row has at a path; what is no plain value becomes its JSON.

    Raises:
        SampleError: as ``text_value``, or what stands there has no JSON.
    """
    return json_of(row, path, value) if is_structure(value) else text_value(value, path)


def json_of(row: Row, path: str, value: Any) -> str:
    """The JSON of what a row has at a path; no text where a table has nothing there but objects that are missing.

    Raises:
        SampleError: it holds bytes, times or NaN.
    """
    try:
        kept = _without_nulls(value) if _is_filled(row, path) else value
        if value and (not kept or (isinstance(kept, list) and all(one == {} for one in kept))):
            return ""
        text = json.dumps(kept, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise SampleError(f"{path}: cannot be written as JSON ({error}); name a text within it") from error
    return text_value(text, path)


def _is_filled(row: Row, path: str) -> bool:
    """Whether nulls of what stands at a path may be those of a table: no text that is JSON has any."""
    if not isinstance(row, FilledRow):
        return False
    ends = () if path in row else range(1, len(parse_path(path)))
    return not any(isinstance(look_up(row, beginning(path, end)), str) for end in ends)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if not _is_missing(inner)}
    if isinstance(value, list | tuple):
        return [_without_nulls(inner) for inner in value]  # each keeps its place
    return value


def _is_missing(value: Any) -> bool:
    """Whether it is null, or an object of nulls, by which tables store one that is missing."""
    return value is None or (isinstance(value, Mapping) and bool(value) and all(map(_is_missing, value.values())))
