"""Rows as lines of JSON: of ledgers with all digits, as commands print them with those that mean something."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


def as_json(row: Mapping[str, Any]) -> str:
    """One line of JSON; numbers that are not finite, for which it has no words, are null."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(row), ensure_ascii=False)


DIGITS = 6
"""Significant ones of a number that a command prints as JSON: more are noise of the sums that it comes from."""


def printed_json(row: Mapping[str, Any]) -> str:
    """As ``as_json``, for what a command prints: numbers have ``DIGITS`` digits, and whole ones all of theirs."""
    return as_json(rounded(row))


def rounded(value: Any) -> Any:
    """Plain values, with their numbers as ``printed_json`` has them."""
    if isinstance(value, float):
        return _round(value) if math.isfinite(value) and value else value
    if isinstance(value, Mapping):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def _round(value: float) -> float:
    return round(value, max(0, DIGITS - 1 - math.floor(math.log10(abs(value)))))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def written_lines(file: Path) -> list[str]:
    """Lines of a ledger, the last one perhaps cut short, within a character too, where a machine went off."""
    return lines_of(file.read_text(encoding="utf-8", errors="replace")) if file.exists() else []


def lines_of(text: str) -> list[str]:
    """Not by ``splitlines``: JSON leaves line ends that only Unicode knows as they stand in names of documents."""
    return text.removesuffix("\n").split("\n") if text else []


def step_row(line: str) -> dict[str, Any] | None:
    """A row of a step; None where a crash cut the line short."""
    try:
        row: dict[str, Any] = json.loads(line)
        return row if "step" in row else None
    except ValueError:
        return None


def missing_rows(name: str, there: Collection[int], step: int) -> str | None:
    """What a user should know of a ledger that has a row for each step, and lacks some up to ``step``; None if none.

    Args:
        name: of the ledger.
        there: the steps of its rows.
    """
    missing = step - len(there)
    if missing <= 0:
        return None
    first = next(number for number in range(1, step + 1) if number not in there)
    which = f"{missing} of the {step} steps up to the checkpoint (from step {first} on)"
    return f"{name}: the rows of {which} are missing and will not be made again; sums over the run lack them"
