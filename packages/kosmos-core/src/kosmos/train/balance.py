"""How evenly the work of encoders lies on the rows of a step: ranks with less of it wait for the one with most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kosmos.data.lane import Row

Cells = Mapping[str, int]
"""Stream to the encoder cells of a row."""


def cells_of(row: Row) -> Cells:
    return {name: len(media.values) for name, media in row.arrays.media.items()}


def balance_of(rows: Sequence[Cells]) -> dict[str, Any]:
    """Fields of a row of metrics, of the rows of all lanes.

    ``imbalance_by_stream`` is the most cells of a row over their mean: 1 where all rows have as many. It says nothing
    of a stream without cells, nor of a single row.
    """
    totals = {name: sum(row[name] for row in rows) for name in (rows[0] if rows else ())}
    uneven = {name: total for name, total in totals.items() if total and len(rows) > 1}
    imbalance = {name: max(row[name] for row in rows) * len(rows) / total for name, total in uneven.items()}
    return {"cells_by_stream": totals, "imbalance_by_stream": imbalance}
