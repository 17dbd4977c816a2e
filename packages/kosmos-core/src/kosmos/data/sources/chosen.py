"""Rows that are held out, or read at all, by what one of their columns says: a fold, some speakers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kosmos.data.sources.columns import Row, did_you_mean, require_column
from kosmos.data.sources.since import lacks
from kosmos.data.sources.spellings import WHOLE, folded
from kosmos.data.sources.splits import GROUP, LIST, Split, said_of, split_of
from kosmos.errors import DataError, SampleError
from kosmos.names import listed

MOST_NAMED, MOST_KEPT = 6, 4096
"""Values that an error names, and that are kept for it."""


@dataclass(frozen=True)
class Chosen:
    """Which rows are held out, or read."""

    column: str
    values: tuple[Any, ...]
    """As they were written."""
    where: str = ""
    """Where the source stands in the run file; empty where it does not."""
    name: str = "held_out"
    """Of the field that says it."""

    @classmethod
    def of(cls, said: Mapping[str, Sequence[Any]], where: str, name: str = "held_out") -> Chosen:
        """Of the field of a run file, which names one column."""
        [(column, values)] = said.items()
        return cls(column, tuple(values), where, name)

    @property
    def field(self) -> str:
        """How messages call it."""
        return f"{self.where}.{self.name}" if self.where else self.name

    def choosing(self) -> Choosing:
        """For one look at all rows."""
        strips = not lacks("spaces")
        return Choosing(self, {_alike(value, strips=strips): value for value in self.values}, strips)


def are_apart(one: Mapping[str, Sequence[Any]] | None, other: Mapping[str, Sequence[Any]] | None) -> bool:
    """Whether no row of a table can be chosen by both."""
    if not one or not other or [*one] != [*other]:
        return False
    mine, theirs = ({_alike(value) for values in said.values() for value in values} for said in (one, other))
    return mine.isdisjoint(theirs)


class _Seen(NamedTuple):
    """What there is to a value that is not chosen."""

    is_near: bool
    """It differs from one that is in case alone."""
    is_test: bool
    """It says that its rows are held out."""


OTHER_ROWS = "another "
"""How it begins what is left out as no row that is to be read."""


def without_rows(kept: Chosen | None, passed: int) -> dict[str, int]:
    """How many rows are left out as another than those that are to be read, as of ``RowSource.left_out``."""
    return {} if kept is None or not passed else {f"{OTHER_ROWS}{kept.column}": passed}


def others_left_out(left_out: Mapping[str, int]) -> dict[str, int]:
    """What of ``RowSource.left_out`` nobody has asked to be left out."""
    return {what: count for what, count in left_out.items() if not what.startswith(OTHER_ROWS)}


def rows_by(chosen: Chosen | None, kept: Chosen | None, columns: Mapping[str, str]) -> tuple[Any, ...]:
    """What it hangs on, beside the rows and the names of columns, which of them are read and which held out."""
    values = () if chosen is None else (chosen.values,)
    keys = bool(values) or kept is not None or GROUP in columns
    return (*values, *(("rows", kept.values) if kept else ()), *(("spaces",) if keys and lacks("spaces") else ()))


@dataclass
class Choosing:
    """Goes over the rows of a table once."""

    chosen: Chosen
    left: dict[str, Any]
    """Values that no row has had so far."""
    strips: bool = True
    """Whether spaces around values are none of them."""
    seen: dict[str, _Seen] = field(default_factory=dict)
    """Values of rows."""
    trains: bool = False
    """Whether any row is left to train on."""
    passed: int = 0
    """Rows that ``takes`` refused."""
    unread: int = 0
    """Rows of which nobody knows what they say."""
    columns: frozenset[str] = frozenset()
    """Of the first of them."""
    others: Counter[str] = field(default_factory=Counter)
    """Rows that are trained on though they differ from one that is held out in case alone, by what they say."""
    tests: Counter[str] = field(default_factory=Counter)
    """Rows that are not chosen though they say that they are held out, by what they say."""

    def __post_init__(self) -> None:
        self._wanted = frozenset(self.left)
        self._near = {folded(value): value for value in self.left}

    @property
    def column(self) -> str:
        """Where the values are."""
        return self.chosen.column

    def takes(self, row: Row | SampleError) -> bool:
        """Whether a row is one of those that are chosen; one that cannot be read is none, as nobody knows."""
        if isinstance(row, SampleError):
            self.unread += 1
            return False
        text = self._said(row)
        takes = text in self._wanted
        if not takes:
            self.columns = self.columns or frozenset(row)
            self.passed += 1
        self._see(text, takes=takes)
        return takes

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
        text = self._said(row)
        is_held = text in self._wanted
        if usable:
            self._see(text, takes=is_held)
        self.trains = self.trains or (usable and not is_held)
        return "held_out" if is_held else "train"

    def _said(self, row: Row) -> str | None:
        value = said_of(row, self.column, strips=self.strips)
        return None if value is None else _alike(value, strips=self.strips)

    def _see(self, text: str | None, *, takes: bool) -> None:
        if text is None:
            return
        self.left.pop(text, None)
        if (found := self.seen.get(text)) is None:
            found = _Seen(not takes and folded(text) in self._near, not takes and split_of(text) == "held_out")
            if len(self.seen) < MOST_KEPT:
                self.seen[text] = found
        if found.is_near:
            self.others[text] += 1
        if found.is_test:
            self.tests[text] += 1

    def finish(self) -> None:
        """Raises DataError where a value is that of no row, or where all rows are held out."""
        self.finish_taking()
        if not self.trains:
            values = listed(map(str, self.chosen.values), at_most=MOST_NAMED)
            raise DataError(
                f"{self.chosen.field}: every row has {self.column} {values}, so that none could be trained on"
            )

    def finish_taking(self) -> None:
        """Raises DataError where a value is that of no row."""
        column, where = self.column, self.chosen.field
        if self.left:
            if self.columns and not self.seen:
                require_column(column, self.columns, where)
            value = next(iter(self.left.values()))
            near = did_you_mean(str(value), list(self.seen)[:MOST_KEPT]) if len(self.seen) > MOST_NAMED else ""
            there = near or f"; there are: {listed(sorted(self.seen), at_most=MOST_NAMED)}" if self.seen else ""
            raise DataError(f"{where}: no row has {column} {value!r}{there}")

    def remarks(self) -> Iterator[str]:
        """What hardly anybody means by it."""
        is_kept = self.chosen.name != "held_out"
        if self.unread:
            yield (
                f"{self.chosen.name}: {rows_are(self.unread)} left out, since they cannot be read, so that nobody "
                f"knows their {self.column}"
            )
        for text, count in [*self.others.items()][:MOST_NAMED]:
            value, are = self._near[folded(text)], "left out" if is_kept else "trained on"
            yield (
                f"{self.chosen.name}: {rows_are(count)} {are}, whose {self.column} is {text!r:.60}, beside those of "
                f"{value!r:.60}; if they are the same, write both alike, or name both"
            )
        if self.tests and not is_kept and self.column != LIST:
            values = ", ".join(value for value in self.seen if value not in self.tests)
            yield (
                f"held_out: {rows_are(self.tests.total())} trained on whose {self.column} is "
                f"{listed(sorted(self.tests), at_most=MOST_NAMED)}; if they are not to be, leave them out "
                f"(rows: {{{self.column}: [{values}]}})"
            )


def rows_are(count: int) -> str:
    return "1 row is" if count == 1 else f"{count:,} rows are"


def _alike(value: Any, *, strips: bool = True) -> str:
    """A value as text, alike however a table or a run file writes it: 4, 4.0 and "4.0", or true and "True"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip() if strips else str(value)
    if (whole := WHOLE.fullmatch(text)) is not None:
        return whole[1]
    return text.lower() if text in ("True", "False", "TRUE", "FALSE") else text
