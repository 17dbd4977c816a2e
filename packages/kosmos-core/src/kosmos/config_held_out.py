"""What of a source is held out, and what is read, as a run file says it: a part of ``kosmos.config``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import field_validator

from kosmos.strict import Strict

OF_ROWS = "such as {split: test} or {site: [north, south]}"
SUCH = "such as {fold: 4} or {speaker: [anna, ben]}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _one_column(value: Mapping[str, Any], are: str, such: str) -> dict[str, list[Any]]:
    if len(value) != 1:
        there = f", got {', '.join(map(str, value))}" if value else ""
        raise ValueError(f"expected one column with the values that are {are}, {such}{there}")
    [(column, values)] = value.items()
    values = list(values) if isinstance(values, list | tuple) else [values]
    if not values or any(one in (None, "") or not isinstance(one, str | int | float) for one in values):
        raise ValueError(f"expected a text, a number, true or false, or several of these in a list, {such}")
    return {str(column): values}


class KeptConfig(Strict):
    """Which rows of a table are documents."""

    rows: dict[str, list[Any]] | None = None
    """The rows that are read: those with some values of a column, ``{split: test}`` or ``{site: [north, south]}``. All
    others are as if they were not there. None reads all."""

    @field_validator("rows", mode="before")
    @classmethod
    def _rows_are_lists(cls, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ValueError(f"expected a column with the values that are read, {OF_ROWS}")
        return _one_column(value, "read", OF_ROWS)


class HeldOutConfig(Strict):
    """A share of a source, or the rows of some values."""

    held_out: float | dict[str, list[Any]] | None = None
    """Of rows that state no split: the share that is held out, or those with some values of a column, ``{fold: 4}`` or
    ``{speaker: [anna, ben]}``. None takes ``data.held_out``."""

    @field_validator("held_out", mode="before")
    @classmethod
    def _values_are_lists(cls, value: Any) -> Any:
        if isinstance(value, list) or (isinstance(value, str) and not _is_number(value)):
            raise ValueError(f"expected a share, or a column with the values that are held out, {SUCH}")
        if not isinstance(value, Mapping):
            return value
        return _one_column(value, "held out", SUCH)

    @field_validator("held_out")
    @classmethod
    def _is_share(cls, value: float | dict[str, list[Any]] | None) -> float | dict[str, list[Any]] | None:
        if isinstance(value, float) and not 0 <= value < 1:
            raise ValueError(f"expected a share of at least 0 and below 1, or a column with values, {SUCH}")
        return value
