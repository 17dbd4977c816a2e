"""Rows that become documents of texts and media in order, and what their source says of such documents."""

from __future__ import annotations

from typing import NamedTuple

from kosmos.data.sources.columns import Row
from kosmos.data.sources.forms import TEXTS
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.data.sources.matched import BETWEEN, is_matched


class Page(NamedTuple):
    """As of a ``PageDocument``."""

    between: str | None
    is_cut: bool


def page_of(layout: Layout, row: Row) -> Page | None:
    """What is said of a row's document; None where nothing is, and of chats, questions and prompts, whose texts speak
    of each medium.

    Raises:
        SampleError: the row has no readable form.
    """
    if not isinstance(layout, DefaultLayout) or not (layout.spares or layout.cuts):
        return None
    between = _between(layout, row)
    return None if between is None else Page(between if layout.spares else None, layout.cuts)


def _between(layout: DefaultLayout, row: Row) -> str | None:
    """What begins a text that follows another one where the medium between them is left out; None of rows of other
    forms."""
    if layout.value(row, "segments") is not None:
        return ""
    if layout.chat(row) is not None:
        return None
    form = layout.form(row, lambda column: row[column] is not None)
    if form == TEXTS and layout.is_in_turn(row, media := layout.media_of(row)):
        return BETWEEN if is_matched({m: (column, row.get(column)) for m, column in media.items()}) else "\n"
    return "" if form is None else None
