"""Ledgers of a run as they are read for a report: whoever copied or wrote a run folder may have changed them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kosmos.errors import TrainingError
from kosmos.names import listed


def rows_of(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a ledger; a line that a crash cut short is passed over."""
    if not file.exists():
        return
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict) and "step" in row:
                yield row


@contextmanager
def figures_of(*files: Path) -> Iterator[None]:
    """Around what takes figures from rows as Kosmos writes them.

    Raises:
        TrainingError: rows have other values than these, and the ledgers are named.
    """
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        names = listed(map(str, files))
        raise TrainingError(
            f"{names}: damaged, or changed by others than kosmos train ({type(error).__name__}: {error}); copy it "
            "anew, or take the rows away that are no such figures"
        ) from error
