"""What is said once for a source of media that are read otherwise than somebody may think."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kosmos.data.sources import forms
from kosmos.data.sources.columns import Row, texts_in
from kosmos.data.sources.gathered import GatheredRows
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.data.sources.media import holds_medium
from kosmos.data.sources.numbered import tag_of
from kosmos.data.sources.source import Table, columns_of, row_with
from kosmos.data.sources.splits import with_meaning
from kosmos.data.sources.time_names import seconds
from kosmos.data.sources.times import edges_of
from kosmos.errors import DataError, SampleError
from kosmos.names import listed

MOST_LOOKED_AT = 64
"""Rows that tell whether places of lists are empty in some."""


def seconds_in_vain(layout: Layout, table: Table, held: Collection[str]) -> Iterator[str]:
    """Of rows that say which seconds are meant of media without time. The first row tells. They may be of something
    else there, such as the film that a picture is of, so that the row is no bad sample.

    Args:
        held: modalities of the rows' media.
    """
    if not held or not isinstance(layout, DefaultLayout) or {*held} & {*layout.timed} or not len(table):
        return
    try:
        columns, taken = columns_of(table, 0), {*with_meaning(layout.columns).values()}
        for names in (("offset", "duration"), *map(edges_of, sorted(held))):
            if not {*names} <= {*columns} - taken:
                continue
            if all(seconds(row_with(table, 0, name).get(name)) is not None for name in names):
                what = listed(sorted(held))
                yield (
                    f"its rows have {' and '.join(names)}, which are not read, as {what} has no seconds: the whole of "
                    "each file is learned; if they say which stretch is meant, write it into a file of its own "
                    "(plugins state seconds by has_time of their ModalitySpec)"
                )
                return
    except (DataError, SampleError):
        return


def moved_up(layout: Layout, table: Table, held: Collection[str]) -> Iterator[str]:
    """Of lists of media, or several columns of them, in which nulls stand before media, and not in all rows the same:
    what is second in one row is first in another.

    Args:
        held: modalities of the rows' media.
    """
    if not held or not isinstance(layout, DefaultLayout) or table.row_blocks() is not None:
        return  # of blocks a whole one would be read
    seen: dict[str, set[tuple[int, ...]]] = {}
    first: dict[str, str] = {}
    for index in range(min(len(table), MOST_LOOKED_AT)):
        try:
            row = table.row(index)
            row = layout.gathered(row) if isinstance(layout, GatheredRows) else row
        except SampleError:
            continue
        if layout.column(forms.TEXTS) in row:  # in turn with them nulls keep their places
            return
        for modality in sorted(held):
            places = _places(row, layout, modality)
            if places:
                seen.setdefault(modality, set()).add(places)
            if places != tuple(range(len(places))):
                first.setdefault(modality, table.origin(index))
    for modality, origin in first.items():
        if len(seen[modality]) > 1:
            yield (
                f"null stands before media of {modality} ({origin}) and not so in other rows, and is passed over: what "
                f"is second in one row is first in another; if places mean something, such as cameras, say in the text "
                f"which is which (<{modality} 2> is the place of the second), or leave out rows that lack one"
            )


def _places(row: Row, layout: DefaultLayout, modality: str) -> tuple[int, ...]:
    """Which places of a row's list of media hold one; none where its texts name them by number."""
    names = dict.fromkeys((layout.column(modality), f"{modality}s"))
    value = next((row[name] for name in names if holds_medium(row.get(name))), None)
    if not isinstance(value, list) or all(map(holds_medium, value)):
        return tuple(range(len(value))) if isinstance(value, list) else ()
    if any(match[2] for text in texts_in(row) for match in tag_of((modality,)).finditer(text)):
        return ()
    return tuple(number for number, one in enumerate(value) if holds_medium(one))
