"""What of a source is held out, as a run file says it: a part of ``kosmos.config``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import field_validator

from kosmos.strict import Strict

SUCH = "such as {fold: 4} or {speaker: [anna, ben]}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
        if len(value) != 1:
            there = f", got {', '.join(map(str, value))}" if value else ""
            raise ValueError(f"expected one column with the values that are held out, {SUCH}{there}")
        [(column, values)] = value.items()
        values = list(values) if isinstance(values, list | tuple) else [values]
        if not values or any(one in (None, "") or not isinstance(one, str | int | float) for one in values):
            raise ValueError(f"expected a text, a number, true or false, or several of these in a list, {SUCH}")
        return {str(column): values}

    @field_validator("held_out")
    @classmethod
    def _is_share(cls, value: float | dict[str, list[Any]] | None) -> float | dict[str, list[Any]] | None:
        if isinstance(value, float) and not 0 <= value < 1:
            raise ValueError(f"expected a share of at least 0 and below 1, or a column with values, {SUCH}")
        return value
