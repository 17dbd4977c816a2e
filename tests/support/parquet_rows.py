"""Columns of Parquet files for tests."""

from __future__ import annotations

from collections.abc import Container
from typing import Any


def pictures(count: int, empty: Container[int] = ()) -> list[dict[str, Any] | None]:
    """Media as Hugging Face keeps them, some of which are missing."""
    return [None if i in empty else {"bytes": b"picture %d" % i, "path": None} for i in range(count)]
