"""Media of one modality that stand in several columns, as MMMU has them: ``image_1``, ``image_2`` and so on.

They are read as one list, in order, and what a row has not is passed over. Where a text that asks has ``<image 2>``,
``<image_2>`` or their like, there stands the medium of that number: that of the column, where all columns end with one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from kosmos.data.document import Segment
from kosmos.data.sources.base64_columns import decoded
from kosmos.data.sources.choice_columns import said
from kosmos.data.sources.choices import ChoiceLayout
from kosmos.data.sources.columns import Row, require_column, top_column
from kosmos.data.sources.layouts import CHATS, DefaultLayout
from kosmos.data.sources.media import holds_medium
from kosmos.data.sources.numbered import MediaList, number_of, numbers_of, with_plain_places
from kosmos.data.sources.pairs_of_answers import PairLayout
from kosmos.data.sources.right_answers import REFERENCES, check_references, with_references
from kosmos.data.sources.since import lacks
from kosmos.data.sources.splits import field_of
from kosmos.errors import ConfigError, DataError, SampleError
from kosmos.names import listed

Columns = Mapping[str, str | Sequence[str]]
MOST_KNOWN = 256
"""Rows of different columns for which it is kept which of them are gathered."""
L = TypeVar("L", bound=DefaultLayout)


def one_each(columns: Columns) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Roles with one column each, and of those that name several, the name that their list goes by to the columns. Of
    ``references`` each column has a role of its own: ``references``, ``references[1]`` and so on.

    Raises:
        ConfigError: one names none, or one twice; or a role is one of those.
    """
    check_references(columns)
    named: dict[str, str] = {}
    several: dict[str, tuple[str, ...]] = {}
    for role, given in columns.items():
        if isinstance(given, str):
            named[role] = given
            continue
        paths = tuple(given)
        if not paths or len({*paths}) < len(paths):
            raise ConfigError(f"columns.{role}: expected a column, or a list of different ones, got {list(paths)}")
        if role == REFERENCES:
            named |= {f"{role}[{number}]" if number else role: path for number, path in enumerate(paths)}
            continue
        name = paths[0] if len(paths) == 1 else name_of(paths)
        while several.get(name, paths) != paths:
            name += "_"  # lists of other columns that begin and end alike
        named[role] = name
        if len(paths) > 1:
            several[name] = paths
    return named, several


def as_given(columns: Mapping[str, str], series: Mapping[str, Sequence[str]]) -> dict[str, str | list[str]]:
    """The reverse of ``one_each``: ``columns`` as they are written."""
    each = with_references(columns).items()
    return {role: [*series[path]] if isinstance(path, str) and path in series else path for role, path in each}


def listed_columns(layout: DefaultLayout) -> tuple[str, ...]:
    """The columns that lists of a layout are gathered from."""
    return tuple(path for paths in layout.series.values() for path in paths) if isinstance(layout, GatheredRows) else ()


def name_of(paths: Sequence[str]) -> str:
    """What errors call several columns as one: ``image_1_to_image_7``."""
    return re.sub(r"\W", "_", f"{paths[0]}_to_{paths[-1]}")


def refuse_in_template(series: Mapping[str, Sequence[str]], *, base64: bool) -> None:
    """Raises ConfigError where several columns are named, or media are base64, beside a template."""
    for paths in series.values():
        raise ConfigError(f"columns: a template names each column in its place ([MODALITY:{paths[0]}]), not a list")
    if base64:
        raise ConfigError("options.base64: a template reads no media of base64; name columns in place of it")


@dataclass(frozen=True)
class GatheredRows(DefaultLayout):
    """The forms of rows, whose media may stand in several columns."""

    series: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of a list to the columns that it is gathered from."""
    base64: bool = False
    """Whether texts in columns of media are media in base64."""

    def check(self, columns: Collection[str]) -> None:
        for role, path in self.columns.items():
            if not set(self.series.get(path, ())) <= (there := {*columns}) and path not in there:
                for one in self.series.get(path, ()):
                    require_column(one, columns, field_of(role))
        try:
            super().check(self._seen(columns))
        except DataError as error:
            raise DataError(self._as_given(str(error))) from error

    def _as_given(self, said: str) -> str:
        """A message with the columns of lists in place of the names that they go by here."""
        for role, path in self.columns.items():
            if path in self.series:
                own = ", ".join(self.series[path])
                said = said.replace(f"{role}: {path}", f"{role}: [{own}]").replace(path, own)
        return said

    def used(self, columns: Collection[str]) -> set[str]:
        return {*self._own(super().used(self._seen(columns)), columns)}

    def media_tops(self, columns: Collection[str]) -> list[str]:
        return super().media_tops(self._seen(columns))

    def scanned(self, columns: Collection[str], plain: Collection[str] = ()) -> tuple[list[str], list[str]]:
        light, media = super().scanned(self._seen(columns), plain)
        return self._own(light, columns), self._own(media, columns)

    def nested(self, columns: Collection[str]) -> set[str]:
        return {*self._own(super().nested(self._seen(columns)), columns)}

    def needs(self, row: Row) -> frozenset[str]:
        return super().needs(self.gathered(row))

    def segments(self, row: Row, root: Path) -> tuple[Segment, ...]:
        return super().segments(self._placed(self._decoded(self.gathered(row))), root)

    def references(self, row: Row) -> tuple[str, ...]:
        return super().references(self.gathered(row))

    def gathered(self, row: Row) -> Row:
        """A row with one list in place of several columns; the same where it has none of them."""
        found = self._found(row)
        if not found:
            return row
        first: dict[str, list[str]] = {}
        for name, paths in found.items():
            first.setdefault(next(top for path in paths if (top := top_column(path, row)) in row), []).append(name)
        gone = self._gone(found, row)
        items: list[tuple[str, Any]] = []
        for column, value in row.items():
            items += [(name, _list_of(row, found[name])) for name in first.get(column, ())]
            if column not in gone:
                items.append((column, value))
        made = cast(dict[str, Any], copy(row))  # a row of an archive knows the files of its sample
        made.clear()
        made.update(items)
        return made

    def _decoded(self, row: Row) -> Row:
        """A row with bytes in place of base64 in its columns of media. Raises SampleError where that is no medium."""
        if not self.base64:
            return row
        plain, inner = {*self.media_tops(row)}, dict[str, list[str]]()
        for path in dict.fromkeys(self.columns[m] for m in self.modalities if m in self.columns):
            if (top := top_column(path, row)) != path:
                inner.setdefault(top, []).append(path)
        made = cast(dict[str, Any], copy(row))
        made.clear()
        for column, value in row.items():
            held = {path: said(row, path) for path in inner.get(column, ())}
            # A column of a path's own name goes before what the path leads to.
            made |= {path: _decoded_media(one, path) for path, one in held.items() if holds_medium(one)}
            is_object = column in inner and not isinstance(value, list)  # or JSON of one
            is_media = column in plain and not is_object and holds_medium(value)
            made[column] = _decoded_media(value, column) if is_media else value
        return made

    def _placed(self, row: Row) -> Row:
        """A gathered row whose chat, or what asks in it, has the numbers of media for their places."""
        for modality in self.modalities:
            for column in (self.column(modality), f"{modality}s"):
                if isinstance(row.get(column), MediaList):
                    row = with_plain_places(row, self._asking(row), column, modality)
        return row

    def _asking(self, row: Row) -> list[str]:
        """The columns of texts that may have places of media."""
        if (chat := next((c for c in map(self.column, CHATS) if row.get(c) is not None), None)) is not None:
            return [chat]
        form = self.form(row, lambda column: row[column] is not None)
        names = (self.column(form), self.column("input")) if form else ()
        return [*dict.fromkeys(name for name in names if isinstance(row.get(name), str))]

    def _seen(self, columns: Collection[str]) -> Collection[str]:
        """Columns with the names of lists in place of those that they are gathered from."""
        if isinstance(columns, Mapping):
            return self.gathered(columns)
        found = self._found(columns)
        gone = self._gone(found, columns)
        return columns if not found else (*(name for name in columns if name not in gone), *found)

    def _gone(self, found: Mapping[str, tuple[str, ...]], columns: Collection[str]) -> set[str]:
        """Columns of lists that nothing else is read from: a text may stand in the object that has the media."""
        own = self.own.named.values() if isinstance(self, ChoiceLayout) else ()
        kept = {top_column(path, columns) for path in (*self.columns.values(), *own) if path not in self.series}
        return {top_column(path, columns) for paths in found.values() for path in paths} - kept

    def _own(self, names: Collection[str], columns: Collection[str]) -> list[str]:
        """The reverse."""
        found = self._found(columns)
        each = ([top_column(path, columns) for path in found[n]] if n in found else [n] for n in names)
        return [*dict.fromkeys(c for several in each for c in several if c in columns or c in names)]

    def _found(self, columns: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Names of lists of which a row or a table has a column, with all columns: of those that are not there the
        media are null, so that the others keep their places."""
        keys = tuple(columns)
        if (known := self._known.get(keys)) is not None:
            return known
        found = self._look(columns)
        if len(self._known) < MOST_KNOWN:
            self._known[keys] = found
        return found

    def _look(self, columns: Collection[str]) -> dict[str, tuple[str, ...]]:
        return {
            name: paths
            for name, paths in self.series.items()
            if name not in columns and any(top_column(path, columns) in columns for path in paths)
        }

    @cached_property
    def _known(self) -> dict[tuple[str, ...], dict[str, tuple[str, ...]]]:
        """Of rows, which are mostly alike."""
        return {}


@dataclass(frozen=True)
class GatheredPairs(GatheredRows, PairLayout):
    """The same, of rows that may be pairs of answers."""

    def both(self, row: Row, root: Path) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
        return super().both(self._placed(self._decoded(self.gathered(row))), root)


@dataclass(frozen=True)
class GatheredChoices(GatheredRows, ChoiceLayout):
    """The same, of questions that offer several answers. Columns of numbers behind a modality, such as ``image_1``,
    are gathered without being named."""

    def _look(self, columns: Collection[str]) -> dict[str, tuple[str, ...]]:
        found, taken = super()._look(columns), {*self.columns.values(), *self.own.named.values()}
        for modality in self.modalities:
            if modality in self.columns or f"{modality}s" in columns:
                continue
            names = [name for name in columns if number_of(name, modality) is not None and name not in taken]
            if names:
                found[f"{modality}s"] = tuple(sorted(names, key=lambda name: number_of(name, modality) or 0))
        return found

    def _asking(self, row: Row) -> list[str]:
        return [
            c for c in map(self.column, CHATS) if row.get(c) is not None
        ]  # of others the places are found by number

    def gathered(self, row: Row) -> Row:
        for modality, paths in ((m, self._found(row).get(f"{m}s", ())) for m in self.modalities):
            held = [path for path in paths if holds_medium(row[path])]
            if held and holds_medium(row.get(modality)):
                raise SampleError(
                    f"{listed([modality, *held])} hold media; name those that are meant (columns: {{{modality}: "
                    f"[{', '.join([modality, *held])}]}})"
                )
        return super().gathered(row)


def gathering(layout: L, series: Mapping[str, tuple[str, ...]], *, base64: bool = False) -> DefaultLayout:
    """A layout that reads several columns as one, where these are named, or may be what a question is about.

    Args:
        base64: whether texts in columns of media are media in base64.

    Raises:
        ConfigError: several columns are named for anything but the media of a modality.
    """
    own = layout.own.named if isinstance(layout, ChoiceLayout) else {}
    for role, path in {**layout.columns, **own}.items():
        if path in series and role not in layout.modalities:
            those = f"the media of a modality and for {REFERENCES}"
            raise ConfigError(f"columns.{role}: expected one column; several may be named for {those}")
    named = {name: paths for name, paths in series.items() if name in layout.columns.values()}
    of_questions = isinstance(layout, ChoiceLayout)
    if not named and not base64 and (not of_questions or lacks("questions")):
        return layout
    made: type[GatheredRows] = GatheredPairs if isinstance(layout, PairLayout) else GatheredRows
    made = GatheredChoices if of_questions else made
    return made(**{one.name: getattr(layout, one.name) for one in fields(layout)}, series=named, base64=base64)


def _decoded_media(held: Any, column: str) -> Any:
    """A medium, or a list of them, with bytes in place of base64."""
    if isinstance(held, MediaList):
        return MediaList((decoded(one, column) for one in held), held.numbers)
    return [decoded(one, column) for one in held] if isinstance(held, list) else decoded(held, column)


def _list_of(row: Row, paths: Sequence[str]) -> MediaList:
    values = [[*held] if isinstance(held := said(row, path), list | tuple) else [held] for path in paths]
    numbers = numbers_of(paths, [len(value) for value in values])
    return MediaList((one for value in values for one in value), numbers)
