"""Rows: where they are, and what their columns mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from kosmos.strict import Strict, at_home

REFERENCES = "references"


def spread_references(columns: Any) -> Any:
    """``columns`` with a role for each column of right answers where a list names several: ``references``,
    ``references[1]`` and so on.

    Raises:
        ValueError: another role has a list.
    """
    if not isinstance(columns, Mapping):
        return columns
    spread: dict[Any, Any] = {}
    for role, named in columns.items():
        if not isinstance(named, list | tuple):
            spread[role] = named
        elif role != REFERENCES or not named:
            raise ValueError(f"{role}: expected the name of one column, got a list; references alone may have several")
        else:
            spread |= {f"{role}[{number}]" if number else role: one for number, one in enumerate(named)}
    return spread


class RowsConfig(Strict):
    """Rows and where their media are. A bare string is the path."""

    path: str
    """A folder, a file, files by a pattern (``data/part-*.jsonl``) or a hub id."""
    name: str | None = None
    """What metrics call it; None takes the last part of the path."""
    root: Path | None = None
    """Folder of the media that rows name; None is the folder of the file. Nothing outside of it is read."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Modality or role, such as ``text``, to the column that holds it, where that has another name; of
    ``references`` a list of columns, too."""

    _several = field_validator("columns", mode="before")(spread_references)
    _home = field_validator("path", "root", mode="before")(at_home)

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value
