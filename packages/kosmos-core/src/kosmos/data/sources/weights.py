"""How much a row counts in the loss, where a column says it (``columns: {weight: score}``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from kosmos.data.document import MOST_WEIGHT
from kosmos.data.sources.columns import Row, kind_of, look_up
from kosmos.errors import SampleError

WEIGHT = "weight"
"""Role of the column. It means nothing where ``columns`` does not name it: tables say what things weigh, too."""


def named_weight(columns: Mapping[str, str]) -> list[str]:
    """The column that is named for it, if one is."""
    return [columns[WEIGHT]] if WEIGHT in columns else []


def weight_of(row: Row, columns: Mapping[str, str]) -> float:
    """``Document.weight`` of a row; 1 where no column is named for it.

    Raises:
        SampleError: what stands there is no number, nor a text that spells one, or too large.
    """
    if WEIGHT not in columns:
        return 1.0
    value: Any = look_up(row, columns[WEIGHT])
    if isinstance(value, int | float | Decimal | str) and not isinstance(value, bool):
        try:
            weight = float(value)
        except (ValueError, OverflowError):
            weight = math.nan
        if abs(weight) <= MOST_WEIGHT:
            return weight
    got = kind_of(value) if isinstance(value, int) or value is None else f"{value!r:.40}"
    raise SampleError(
        f"{columns[WEIGHT]}: expected the row's weight, a number from {-MOST_WEIGHT:,} to {MOST_WEIGHT:,}, got {got}"
    )
