"""Numbers of JSON that are learned as text: said once for a source, as ``1.10`` and ``1.1`` are one number there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kosmos.data.document import Text
from kosmos.data.sources.choices import ChoiceLayout
from kosmos.data.sources.columns import Row, look_up
from kosmos.data.sources.delimited import DelimitedTable
from kosmos.data.sources.jsonl import JsonlTable
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.layouts import LEARNED, DefaultLayout
from kosmos.data.sources.right_answers import REFERENCES, names_answers
from kosmos.data.sources.source import Table
from kosmos.data.sources.template import TemplateLayout
from kosmos.errors import SampleError

MOST_LOOKED_AT = 16
"""Rows."""


def learned_numbers(layout: Layout, table: Table) -> Iterator[str]:
    """Of a source whose first rows have a number with a fraction in the place of what is learned."""
    paths = _paths(layout)
    own = getattr(table, "table", table)  # of one whose media are in another folder
    tables = getattr(own, "tables", (own,))
    if not paths or not all(isinstance(one, JsonlTable) and not isinstance(one, DelimitedTable) for one in tables):
        return  # columns of other tables have types, or are texts
    for index in range(min(len(table), MOST_LOOKED_AT)):
        try:
            row = table.row(index)
            found = {path: number for path in paths if (number := _number(row, path, layout)) is not None}
            texts = layout.segments(row, table.root(index)) if found else ()
        except SampleError:
            continue
        learned = "\n".join(segment.text for segment in texts if isinstance(segment, Text) and segment.train)
        for path, number in found.items():
            if str(number) in learned:  # it may stand beside a chat, and not be read
                yield (
                    f"its rows have numbers in {path}, such as {number}, which are learned as Python writes them: 1.10 "
                    "in the file becomes 1.1; write texts where digits count, as in amounts"
                )
                return


def _paths(layout: Layout) -> list[str]:
    """What is learned of a row where it is there."""
    if isinstance(layout, TemplateLayout):
        return layout.learned_paths
    is_learned = isinstance(layout, DefaultLayout) and not layout.asked and not isinstance(layout, ChoiceLayout)
    return [layout.columns.get(role, role) for role in LEARNED if role != REFERENCES] if is_learned else []


def _number(row: Row, path: str, layout: Layout) -> float | None:
    if path not in row and path.isidentifier():
        return None
    value: Any = look_up(row, path)
    if isinstance(value, list) and names_answers(path, layout.columns):
        value = next((one for one in value if isinstance(one, float)), None)
    return value if isinstance(value, float) else None
