"""The columns that a row's media stand in."""

from __future__ import annotations

from collections.abc import Mapping

from kosmos.data.sources.columns import Row, top_column
from kosmos.errors import SampleError


def both_hold(modality: str, *columns: str) -> SampleError:
    """What is wrong with a row whose singular and plural both hold media."""
    return SampleError(f"{' and '.join(sorted(columns))} both hold media; keep one, or name it: columns.{modality}")


def in_order(columns: Mapping[str, str], row: Row) -> dict[str, str]:
    """Modalities with their columns, in the order of the row's."""
    order = list(row)
    return dict(sorted(columns.items(), key=lambda found: order.index(top_column(found[1], row))))
