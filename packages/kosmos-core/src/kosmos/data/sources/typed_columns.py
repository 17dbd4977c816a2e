"""Columns of tables whose own types say that they hold files, and what becomes of those that nothing reads.

A column of ``{bytes, path}`` is a file, whoever wrote it; which modality it is of ``datasets`` notes beside it
(``Features``). Where nothing else of a row is a medium such a table would be taken as text alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kosmos.data.sources.columns import Row
from kosmos.data.sources.features import Features
from kosmos.data.sources.forms import LIKE_ASKS, written
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.layouts import CHATS, DefaultLayout
from kosmos.data.sources.preferences import is_rejected
from kosmos.data.sources.since import is_opened_before
from kosmos.data.sources.well_known import WELL_KNOWN
from kosmos.errors import DataError, SampleError
from kosmos.names import listed

_FILE = frozenset(("bytes", "path"))
_NUMBERED = re.compile(r"(.*\D)(\d{1,3})")


class Typed(Protocol):
    """A table that knows the types of its columns."""

    features: Features
    columns: tuple[str, ...]
    shape: Mapping[str, Any]
    """As of ``shape_of``, of all columns."""

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]: ...


class Asked(Protocol):
    """What of a ``Request`` counts."""

    @property
    def path(self) -> str: ...
    @property
    def modalities(self) -> tuple[str, ...]: ...
    @property
    def known(self) -> tuple[str, ...]: ...
    @property
    def columns(self) -> Mapping[str, str]: ...
    @property
    def choices(self) -> object: ...
    def layout(self, media_columns: Mapping[str, str | Sequence[str]] | None = None) -> Layout: ...


def layout_of(table: Typed, request: Asked) -> Layout:
    """How the rows of a table become documents. Its types say which columns hold media, several of one modality too
    where these are questions and the columns are numbered.

    Raises:
        DataError: it has columns of files, and nothing would be read of them. A run that was begun so goes on; files
            of no modality of a run that asks questions, and columns that are null throughout, are told alone
            (``unread_beside``).
    """
    several = _numbered(table.features, request.known) if request.choices else {}
    layout = request.layout({**several, **table.features.columns(request.known)})
    unread = unread_in(layout, table, request.known)
    if request.choices:  # of which no template leaves a column out
        unread = {
            name: kind for name, kind in unread.items() if request.modalities and kind in ("", *request.modalities)
        }
    if not unread or not isinstance(layout, DefaultLayout) or is_opened_before() or _reads_any(layout, table):
        return layout
    if _hold_any(table, unread):
        hold, them = ("holds files", "it") if len(unread) == 1 else ("hold files", "them")
        alone = (
            ""
            if request.choices
            else f'; for the text alone give a template (template: "{{{_text_of(layout, table)}}}")'
        )
        raise DataError(
            f"{request.path}: {listed(unread)} {hold}, and no column of media is read; name {them} "
            f"({_columns(unread, request.modalities, request.columns)}){alone}"
        )
    return layout


def media_columns(table: Typed, modalities: Collection[str]) -> dict[str, str]:
    """Columns of files, in their order, with their modality; "" where nobody knows it."""
    kinds = {column: kind for column, kind in table.features.kinds.items() if kind in (*modalities, *WELL_KNOWN)}
    files = [name for name, held in table.shape.items() if isinstance(held, Mapping) and held.keys() == _FILE]
    return {n: kinds.get(n) or _called(n, modalities) for n in table.shape if n in {*kinds, *files}}


def unread_in(layout: Layout, table: Typed, modalities: Collection[str]) -> dict[str, str]:
    """Those of them that a layout of rows does not read. A template says itself what is read."""
    used = layout.used(table.shape) if isinstance(layout, DefaultLayout) else {*table.shape}
    found = media_columns(table, modalities)
    return {name: kind for name, kind in found.items() if name not in used and not is_rejected(name)}


def unread_beside(layout: Layout, table: object, modalities: Collection[str]) -> Iterator[str]:
    """What is to be told of such columns of a source that is read without them."""
    first: Any = getattr(table, "table", table)  # of one whose media are in another folder
    first = getattr(first, "tables", (first,))[0]
    if not hasattr(first, "shape") or not hasattr(first, "features"):
        return
    if unread := unread_in(layout, first, modalities):
        them, hold = ("it is", "holds") if len(unread) == 1 else ("they are", "hold")
        alike = {name: kind for name, kind in media_columns(first, modalities).items() if kind in unread.values()}
        yield (
            f"its rows have {listed(unread)}, which {hold} files and {them.partition(' ')[2]} not read; if {them} "
            f"meant, name all columns of media ({_columns(alike, modalities)})"
        )


def _reads_any(layout: DefaultLayout, table: Typed) -> bool:
    """Whether rows may have media that are read: those of a chat may stand in its turns."""
    used = layout.used(table.shape)
    return bool(layout.media_tops(table.shape)) or any(layout.column(name) in used for name in ("segments", *CHATS))


@dataclass(frozen=True)
class _Files(DefaultLayout):
    """Of some columns alone, for a look at which rows hold something there."""

    names: tuple[str, ...] = ()

    def scanned(self, columns: Collection[str], plain: Collection[str] = ()) -> tuple[list[str], list[str]]:
        return [*plain][:1], [*self.names]


def _hold_any(table: Typed, names: Collection[str]) -> bool:
    """Whether a row of a table holds something in one of these columns, or cannot be read."""
    rows = table.scan(_Files((), names=tuple(names)))
    return any(isinstance(row, SampleError) or any(row[name] is not None for name in names) for row in rows)


def _numbered(features: Features, modalities: Collection[str]) -> dict[str, Sequence[str]]:
    """Modality to all columns of its type, of which there are several, called alike but for a number."""
    found: dict[str, Sequence[str]] = {}
    for modality in modalities:
        columns = [column for column, kind in features.kinds.items() if kind == modality]
        parts = [match for column in columns if (match := _NUMBERED.fullmatch(column))]
        if len(parts) == len(columns) > 1 and len({match[1] for match in parts}) == 1:
            found[modality] = sorted(columns, key=lambda column: int(_NUMBERED.fullmatch(column)[2]))  # type: ignore[index]
    return found


def _called(column: str, modalities: Collection[str]) -> str:
    """The modality that a column is called by; "" where it is called otherwise."""
    return next((name for name in modalities if name in column.lower()), "")


def _columns(unread: Mapping[str, str], modalities: Collection[str], columns: Mapping[str, str] | None = None) -> str:
    """``columns`` that name them."""
    of: dict[str, list[str]] = {}
    for column, kind in unread.items():
        of.setdefault(kind or (next(iter(modalities)) if len(modalities) == 1 else "MODALITY"), []).append(column)
    each = {kind: names[0] if len(names) == 1 else f"[{', '.join(names)}]" for kind, names in of.items()}
    return written({**(columns or {}), **each})


def _text_of(layout: DefaultLayout, table: Typed) -> str:
    """A column that is read and holds text."""
    used = layout.used(table.shape)
    names = (layout.column(role) for role in (*LIKE_ASKS, "text"))
    return next((name for name in names if name in used and table.shape.get(name) == ""), "COLUMN")
