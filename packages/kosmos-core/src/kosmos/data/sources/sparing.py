"""Rows that become documents without those of their media that cannot be used (``missing_media: leave_out``)."""

from __future__ import annotations

from kosmos.data.sources.columns import Row
from kosmos.data.sources.forms import TEXTS
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.data.sources.matched import BETWEEN, is_matched


def between_texts(layout: Layout, row: Row) -> str | None:
    """What begins a text of a row that follows another one where the medium between them is left out; None where none
    may be: in chats and questions a text speaks of each.

    Raises:
        SampleError: the row has no readable form.
    """
    if not isinstance(layout, DefaultLayout) or not layout.spares:
        return None
    if layout.value(row, "segments") is not None:
        return ""
    if layout.chat(row) is not None:
        return None
    form = layout.form(row, lambda column: row[column] is not None)
    if form == TEXTS and layout.is_in_turn(row, media := layout.media_of(row)):
        return BETWEEN if is_matched({m: (column, row.get(column)) for m, column in media.items()}) else "\n"
    return "" if form is None else None
