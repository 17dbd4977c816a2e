"""Rows that are held out by what one of their columns says: a fold, some speakers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kosmos.data.sources.columns import Row, did_you_mean
from kosmos.data.sources.splits import Split, said_of
from kosmos.errors import DataError
from kosmos.names import listed

_WHOLE = re.compile(r"([+-]?\d+)\.0+")
"""A whole number as tables write it whose column lacks one somewhere."""
MOST_NAMED, MOST_KEPT = 6, 4096
"""Values that an error names, and that are kept for it."""


@dataclass(frozen=True)
class Chosen:
    """Which rows are held out."""

    column: str
    values: tuple[Any, ...]
    """As they were written."""
    where: str = ""
    """Where the source stands in the run file; empty where it does not."""

    @classmethod
    def of(cls, held_out: Mapping[str, Sequence[Any]], where: str) -> Chosen:
        """Of the field of a run file, which names one column."""
        [(column, values)] = held_out.items()
        return cls(column, tuple(values), where)

    @property
    def field(self) -> str:
        """How messages call it."""
        return f"{self.where}.held_out" if self.where else "held_out"

    def choosing(self) -> Choosing:
        """For one look at all rows."""
        return Choosing(self, {_alike(value): value for value in self.values})


@dataclass
class Choosing:
    """Goes over the rows of a table once."""

    chosen: Chosen
    left: dict[str, Any]
    """Values that no row has had so far."""
    seen: dict[str, None] = field(default_factory=dict)
    trains: bool = False
    """Whether any row is left to train on."""

    def __post_init__(self) -> None:
        self._wanted = frozenset(self.left)

    @property
    def column(self) -> str:
        """Where the values are."""
        return self.chosen.column

    def split(self, row: Row, origin: str, own: Split | None, *, usable: bool) -> Split:
        """The part that a row belongs to.

        Args:
            own: what the data state, in another column or by the names of files.
            usable: whether the run can use it.

        Raises:
            DataError: the data state themselves what is held out.
        """
        if own == "held_out":
            raise DataError(
                f"{self.chosen.field}: the data state themselves what is held out (such as {origin}), and that stays; "
                "leave it out, or name the column of the split in it (such as {split: test})"
            )
        value = said_of(row, self.column)
        text = None if value is None else _alike(value)
        if text is not None and usable:
            self.left.pop(text, None)
            if len(self.seen) < MOST_KEPT:
                self.seen[text] = None
        if text in self._wanted:
            return "held_out"
        self.trains = self.trains or usable
        return "train"

    def finish(self) -> None:
        """Raises DataError where a value is that of no row, or where all rows are held out."""
        column, where = self.column, self.chosen.field
        if self.left:
            value = next(iter(self.left.values()))
            near = did_you_mean(str(value), list(self.seen)[:MOST_KEPT]) if len(self.seen) > MOST_NAMED else ""
            there = near or f"; there are: {listed(sorted(self.seen), at_most=MOST_NAMED)}" if self.seen else ""
            raise DataError(f"{where}: no row has {column} {value!r}{there}")
        if not self.trains:
            values = listed(map(str, self.chosen.values), at_most=MOST_NAMED)
            raise DataError(f"{where}: every row has {column} {values}, so that none could be trained on")


def _alike(value: Any) -> str:
    """A value as text, alike however a table or a run file writes it: 4, 4.0 and "4.0", or true and "True"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value)
    if (whole := _WHOLE.fullmatch(text)) is not None:
        return whole[1]
    return text.lower() if text in ("True", "False", "TRUE", "FALSE") else text
