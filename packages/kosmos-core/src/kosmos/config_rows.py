"""Rows: where they are, and what their columns mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from kosmos.strict import Strict, at_home


class RowsConfig(Strict):
    """Rows and where their media are. A bare string is the path."""

    path: str
    """A folder, a file, files by a pattern (``data/part-*.jsonl``) or a hub id."""
    name: str | None = None
    """What metrics call it; None takes the last part of the path."""
    root: Path | None = None
    """Folder of the media that rows name; None is the folder of the file. Nothing outside of it is read."""
    columns: dict[str, str | list[str]] = Field(default_factory=dict)
    """Modality or role, such as ``text``, to the column that holds it, where that has another name; of a modality and
    of ``references`` several, too."""

    _home = field_validator("path", "root", mode="before")(at_home)

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value
