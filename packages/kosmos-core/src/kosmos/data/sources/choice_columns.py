"""Under which columns the rows of questions have what is asked, what is offered, and which of it is right."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from kosmos.data.sources import times
from kosmos.data.sources.columns import Row, look_up, nested_tops, top_column
from kosmos.data.sources.forms import LETTERS, SERIES
from kosmos.data.sources.since import lacks
from kosmos.errors import ConfigError, SampleError
from kosmos.names import listed

ASKS = ("question", "query", "prompt", "ctx")
BEFORE = ("hint", "context", "passage", "article", "support", "text")
WHOLE = ("messages", "conversations", "segments")
OFFERS = ("choices", "options", "endings", "candidates")
RIGHT = ("gold", "answer", "answer_index", "answerKey", "label", "target", "truth")
OFFERED = f"{listed(OFFERS)}, or A, B and so on"
_KINDS = (BEFORE, ASKS, OFFERS, RIGHT)
ROLES = (*BEFORE, *ASKS, *WHOLE, *OFFERS, *RIGHT, *LETTERS, "id", "split", *times.ROLES)
"""What ``columns`` may name, beside the modalities."""


MOST_KNOWN = 256
"""Rows of different columns for which it is kept which are those of the question."""


class Each(NamedTuple):
    """Columns of an answer each."""

    columns: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChoiceColumns:
    """The columns of a question, which are called by their roles or named.

    Of several roles of one kind, such as ``choices`` and ``options``, those that are named count alone.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    """Role to the column, or nested path, that holds it."""
    beside: tuple[str, ...] = ()
    """Columns that are named for anything else, such as a medium."""

    hints: bool = True
    """Whether what is in ``hint`` stands in front of the question, without being named."""

    def __post_init__(self) -> None:
        letters = [role for role in LETTERS if role in self.named]
        if letters and letters != list(LETTERS[: max(len(letters), 2)]):
            raise ConfigError(
                f"columns.{letters[-1]}: columns of an answer each are named from A on, one after the other, two or "
                f"more; named are {listed(letters)}"
            )
        if letters and (other := next((role for role in OFFERS if role in self.named), None)):
            raise ConfigError(f"columns.{other}: columns.A and so on say what is offered, too; name one of them")

    @classmethod
    def of(cls, columns: Mapping[str, str]) -> tuple[ChoiceColumns, dict[str, str]]:
        """Those of what ``columns`` of a source names, and the others."""
        roles = (*(role for kind in _KINDS for role in kind), *LETTERS)
        others = {role: path for role, path in columns.items() if role not in roles}
        named = {role: columns[role] for role in roles if role in columns}
        return cls(named, tuple(others.values()), hints=not lacks("questions")), others

    @cached_property
    def before(self) -> tuple[str, ...]:
        """What may stand in front of the question."""
        return self._of(
            BEFORE if self.hints else tuple(role for role in BEFORE if role != "hint" or role in self.named)
        )

    @cached_property
    def asks(self) -> tuple[str, ...]:
        """What may be the question."""
        return self._of(ASKS)

    @cached_property
    def offers(self) -> tuple[str, ...]:
        """What may hold all that is offered."""
        return () if self._letters.columns else self._of(OFFERS)

    @cached_property
    def right(self) -> tuple[str, ...]:
        """What may say which is right."""
        return self._of(RIGHT)

    @property
    def what_offers(self) -> str:
        """The columns of what is offered, for errors."""
        if self._letters.columns:
            return listed(self._letters.columns)
        return OFFERED if self.offers_freely else listed(self.offers)

    @property
    def offers_freely(self) -> bool:
        """Whether nobody has named what is offered."""
        return self.named.keys().isdisjoint((*OFFERS, *LETTERS))

    def each(self, columns: Collection[str]) -> Each:
        """The columns of an answer each that a row or a table has; none where it has not the first two."""
        if self._letters.columns or not self.offers_freely:
            return self._letters
        for series in SERIES:
            if series[0] in columns and series[1] in columns:
                there = tuple(name for name in series if name in columns)
                before = len(series[0]) - 1
                return Each(there, tuple(name[before:] for name in there))
        return Each()

    def all(self, columns: Collection[str]) -> frozenset[str]:
        """Columns of a row or a table that hold any of this."""
        keys = tuple(columns)
        if (known := self._known.get(keys)) is not None:
            return known
        kinds = {role for kind in _KINDS for role in kind if role not in self.beside}
        paths = (*kinds, *self._paths, *self.each(columns).columns)
        found = frozenset(top for path in paths if (top := top_column(path, columns)) in columns)
        if len(self._known) < MOST_KNOWN:
            self._known[keys] = found
        return found

    def nested(self, columns: Collection[str]) -> set[str]:
        """Columns of a table that hold lists or objects; what is offered may be told otherwise (``listed_text``)."""
        return nested_tops(self._paths, columns)

    @cached_property
    def _known(self) -> dict[tuple[str, ...], frozenset[str]]:
        """Of the columns of rows, which are mostly alike: to find them takes 4 microseconds a row."""
        return {}

    @cached_property
    def _letters(self) -> Each:
        there = tuple(role for role in LETTERS if role in self.named)
        return Each(tuple(self.named[role] for role in there), there)

    @cached_property
    def _paths(self) -> tuple[str, ...]:
        return tuple(self.named.values())

    def _of(self, kind: Sequence[str]) -> tuple[str, ...]:
        if named := tuple(self.named[role] for role in kind if role in self.named):
            return named
        taken = {top_column(path, ()) for path in (*self._paths, *self.beside)}
        return tuple(role for role in kind if role not in taken)


def said(row: Row, path: str) -> Any:
    """What a row holds at a path; null where it has no such value."""
    if path.isidentifier() or path in row:
        return row.get(path)
    try:
        return look_up(row, path)
    except SampleError:
        return None
