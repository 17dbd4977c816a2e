"""What rows have that is not read though it may be meant: said once for a source, as the row is no bad one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from kosmos.data.sources import forms
from kosmos.data.sources.choices import ChoiceLayout
from kosmos.data.sources.columns import is_empty, look_up
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.layouts import CHATS, DefaultLayout
from kosmos.data.sources.matched import sentences
from kosmos.data.sources.remarks_on_media import moved_up, seconds_in_vain
from kosmos.data.sources.right_answers import ANSWERS
from kosmos.data.sources.source import Table, columns_of, row_with
from kosmos.data.sources.splits import with_meaning
from kosmos.data.sources.time_names import is_surely_time, pairs, several
from kosmos.errors import DataError, SampleError

Meant = Callable[[Sequence[str], Mapping[str, str]], Mapping[str, Sequence[str]]]
"""The modalities of columns, by the suffixes of what they name: each with its columns."""


def names_of_absent(
    names: Mapping[str, str], meant: Meant, modalities: Collection[str], *, has_root: bool
) -> Iterator[str]:
    """Of rows that are taken as text alone, since nothing is where they name a medium.

    Args:
        names: by column, of the first such row.
        modalities: of the run; nobody expects others.
        has_root: whether the folder of the media is named.
    """
    suffixes = {column: Path(name.partition("?")[0]).suffix.lower() for column, name in names.items()}
    for modality, columns in meant([*suffixes], suffixes).items():
        for column in columns if modality in modalities else ():
            is_address = "://" in names[column] and not names[column].startswith("file:")
            what = "a web address, which is not read" if is_address else "which is no file in the folder of the data"
            first = "download them, and " if is_address else ""
            place = "" if has_root or is_address else " and their folder (root)"
            yield (
                f"its rows are taken as text alone: {column} names {names[column]!r:.120}, {what}; if the files are "
                f"meant, {first}name the column (columns: {{{modality}: {column}}}){place}"
            )


def of_rows(layout: Layout, table: Table, held: Collection[str]) -> Iterator[str]:
    """``asked_in_vain``, ``judged_in_vain``, ``offered_in_vain``, ``glued_sentences`` and ``glued_answers``, and those
    on media (``remarks_on_media``)."""
    yield from asked_in_vain(layout, table, held)
    yield from judged_in_vain(layout, table, held)
    yield from offered_in_vain(layout, table)
    yield from glued_sentences(layout, table)
    yield from glued_answers(layout, table)
    yield from seconds_in_vain(layout, table, held)
    yield from moved_up(layout, table, held)


def asked_in_vain(layout: Layout, table: Table, held: Collection[str]) -> Iterator[str]:
    """Of rows whose text is learned behind a medium, while what asks for it is passed over. The first row tells.

    Args:
        held: modalities of the rows' media.
    """
    is_learned = isinstance(layout, DefaultLayout) and not layout.asked and not isinstance(layout, ChoiceLayout)
    if not held or not is_learned or not len(table) or table.row_blocks() is not None:
        return  # of blocks a whole one would be read
    try:
        row = table.row(0)
        if not layout.needs(row):
            return
    except SampleError:
        return
    text = layout.columns.get("text", "text")
    others = ("segments", *CHATS, *forms.LIKE_ANSWERS)  # which are read in its place
    if not isinstance(row.get(text), str) or any(layout.columns.get(name, name) in row for name in others):
        return
    asks = (name for name in forms.LIKE_ASKS if isinstance(row.get(name), str) and row[name].strip())
    if (column := next((name for name in asks if name not in layout.columns.values()), None)) is not None:
        roles = ("prompt", "completion") if column == forms.GOES_ON else ("query", "response")
        yield (
            f"its rows have {column}, which is not read: {text} alone is learned of the media; if it is what asks for "
            f"that, name both (columns: {{{roles[0]}: {column}, {roles[1]}: {text}}})"
        )


def judged_in_vain(layout: Layout, table: Table, held: Collection[str]) -> Iterator[str]:
    """Of questions of media that are learned themselves, while what answers them is passed over. The first rows tell.

    Args:
        held: modalities of the rows' media.
    """
    if not held or not isinstance(layout, DefaultLayout) or isinstance(layout, ChoiceLayout):
        return
    if "text" in layout.columns or table.row_blocks() is not None:
        return  # of blocks a whole one would be read
    asks, column = "", None
    for index in range(min(len(table), FIRST_ROWS)):
        try:
            row = table.row(index)
        except SampleError:
            continue
        if any(layout.column(name) in row for name in ("segments", *CHATS, *forms.ROLES)):
            return
        text = row.get("text")
        column = next((n for n in sorted(forms.telling(row)) if n not in layout.columns.values()), None)
        if column is None or not isinstance(text, str) or not text.rstrip().endswith(("?", "\uff1f")):
            return
        if is_empty(row[column]) or not isinstance(row[column], str | int | float):
            return
        asks = asks or text.strip()
    if asks:
        yield (
            f"its rows ask in text ({asks!r:.60}), which is what is learned, and have {column}, which is not "
            f"read; if it is the answer, name both (columns: {{query: text, response: {column}}})"
        )


def glued_answers(layout: Layout, table: Table) -> Iterator[str]:
    """Of lists of answers to a question that become one text, joined by commas. The first row tells."""
    if not isinstance(layout, DefaultLayout) or isinstance(layout, ChoiceLayout) or not len(table):
        return
    if table.row_blocks() is not None or ANSWERS in layout.columns:
        return  # of blocks a whole one would be read
    try:
        row = table.row(0)
        if any(layout.column(name) in row for name in ("segments", *CHATS)) or layout.form(row) != forms.QUESTION:
            return
        path = layout.column(forms.ASKS[forms.QUESTION])
        held = look_up(row, path)
    except SampleError:
        return
    if isinstance(held, list) and len(held) > 1 and all(isinstance(text, str) for text in held):
        yield (
            f"its rows have lists of texts in {path}, which are one answer, joined by commas; if each is a right "
            f"answer, name them so (columns: {{answers: {path}}})"
        )


def glued_sentences(layout: Layout, table: Table) -> Iterator[str]:
    """Of lists of sentences that become one text, joined by commas as tags are. The first row tells."""
    if not isinstance(layout, DefaultLayout) or layout.asked or isinstance(layout, ChoiceLayout) or not len(table):
        return
    if table.row_blocks() is not None:
        return  # of blocks a whole one would be read
    path = layout.columns.get("text", "text")
    others = ("segments", *CHATS, forms.TEXTS)  # which are read in its place
    try:
        row = table.row(0)
        held = () if any(layout.column(name) in row for name in others) else look_up(row, path)
    except SampleError:
        return
    if isinstance(held, list) and len(found := [*sentences(held)]) > 1 and 2 * len(found) >= len(held):
        yield (
            f"its rows have lists of sentences in {path}, which are learned as one text, joined by commas as tags are; "
            f"if they are texts in turn with media, or a line each, name them so (columns: {{texts: {path}}})"
        )


FIRST_ROWS = 8
"""Rows in which a column is looked for that holds something."""


def offered_in_vain(layout: Layout, table: Table) -> Iterator[str]:
    """Of questions and answers beside columns that seem to hold what is offered, which nobody is shown."""
    if not isinstance(layout, DefaultLayout) or isinstance(layout, ChoiceLayout):
        return
    taken = {*layout.columns.values()}
    for index in range(min(len(table), FIRST_ROWS)):
        try:
            columns = columns_of(table, index)
            if any(layout.column(role) in columns for role in ("segments", *CHATS)):
                return
            beside = [name for name in columns if name in forms.MAY_BELONG and name not in taken]
            if not beside or layout.form(columns) != forms.QUESTION:
                continue
            column = next((n for n in beside if not is_empty(row_with(table, index, n).get(n))), None)
        except (DataError, SampleError):
            continue
        if column is not None:
            asked = layout.column(forms.QUESTION)
            yield (
                f"its rows have {column}, which is not read: {asked} is all that is asked; if {column} is what is "
                f"offered, show it with a template"
            )
            return


MOST_LOOKED_AT = 64
"""Rows that tell whether several are of one file."""


def may_be_pieces(layout: Layout, table: Table, timed: Collection[str]) -> Iterator[str]:
    """Of rows with numbers under names that say little, such as ``from`` and ``to``, where several name one file
    and not the same of it.

    Args:
        timed: modalities of the rows' media whose media have time.
    """
    if not timed or {"clip", "start", "end"} & {*layout.columns} or not len(table) or table.row_blocks() is not None:
        return  # of blocks a whole one would be read
    first: dict[str, tuple[float, float]] = {}
    taken = {*with_meaning(layout.columns).values()}
    for index in range(min(len(table), MOST_LOOKED_AT)):
        try:
            row = table.row(index)
        except SampleError:
            continue
        found = next(pairs(row, taken), None) or next(several(row, taken), None)
        if found is None or is_surely_time(found) or "clip" in row:  # of which a sample tells itself, or it is read
            return
        for medium in (row.get(layout.columns.get(modality, modality)) for modality in timed):
            if isinstance(medium, str) and first.setdefault(medium, found.times) != found.times:
                roles = dict(zip(("start", "end"), found.names, strict=False))
                roles = roles if len(roles) > 1 else {"clip": found.names[0]}
                columns = ", ".join(f"{role}: {name}" for role, name in roles.items())
                yield (
                    f"its rows have {' and '.join(found.names)}, which {'are' if len(roles) > 1 else 'is'} not read, "
                    f"and several are of one file ({medium:.80}): the text of each is learned for the whole of it; if "
                    f"they are seconds, name the columns (columns: {{{columns}}})"
                )
                return


def remarks_of(source: object) -> Iterator[str]:
    """What else its rows have that is not read though it may be meant."""
    yield from (f"{getattr(source, 'name', '')}: {line}" for line in getattr(source, "remarks", ()))
