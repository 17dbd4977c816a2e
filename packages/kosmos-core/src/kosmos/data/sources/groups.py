"""Groups of rows that are held out together, and splits that data state: what of them hardly anybody means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kosmos.data.sources.columns import Row
from kosmos.data.sources.since import lacks
from kosmos.data.sources.source import Table, row_with
from kosmos.data.sources.spellings import Spellings
from kosmos.data.sources.splits import group_hash, said_of
from kosmos.errors import SampleError
from kosmos.names import listed


class Groups:
    """The groups of a table's rows, over which it goes once.

    Args:
        column: that tells the groups apart.
        rows: of the table.
    """

    def __init__(self, column: str, rows: int) -> None:
        self.column, self.strips = column, not lacks("spaces")
        self.have = np.zeros(rows, np.bool_)
        """Rows that name a group: [rows]."""
        self.spellings = Spellings()

    def hash(self, row: Row, index: int) -> int | None:
        """Of the row's group; None where it names none."""
        group = said_of(row, self.column, strips=self.strips)
        if group is None:
            return None
        self.have[index] = True
        self.spellings.add(group)
        return group_hash(group)

    def remarks(
        self, table: Table, hashes: NDArray[np.uint64], usable: NDArray[np.bool_], held: NDArray[np.bool_], by: str
    ) -> Iterator[str]:
        """A line each.

        Args:
            hashes: of the rows, by their groups where they have some: [rows].
            usable: rows that are read: [rows].
            held: those that the data, or the run file, state as held out: [rows]; none where a share is.
            by: what states it.
        """
        if count := len(self.spellings.several):
            them = "1 group is" if count == 1 else f"{count:,} groups are"
            yield (
                f"{them} written in several ways in {self.column}, such as {self.spellings.example}, which are groups "
                "of their own: one may be held out and the other trained on; write each in one way"
            )
        have = self.have & usable
        if not (held & usable).any():
            if count := int((usable & ~have).sum()):
                rows, they, place = ("row has", "it is", "") if count == 1 else ("rows have", "each is", "the first: ")
                where = table.origin(int(np.flatnonzero(usable & ~have)[0]))
                yield f"{count:,} {rows} no {self.column} ({place}{where}): {they} a group by itself"
            return
        both = np.intersect1d(hashes[have & held], hashes[have & ~held])
        if len(both):
            them = "1 group is" if len(both) == 1 else f"{len(both):,} groups are"
            such = self._name(table, int(np.flatnonzero(have & np.isin(hashes, both))[0]))
            yield (
                f"{them} on both sides, trained on and held out, of {self.column}{such}: {by} states which rows are "
                "held out, and columns.group has no effect beside it; scores are of groups that were trained on"
            )

    def _name(self, table: Table, index: int) -> str:
        try:
            group = said_of(row_with(table, index, self.column), self.column, strips=self.strips)
        except SampleError:
            return ""
        return f" (such as {group!s:.60})"


class HeldOutNames:
    """The names of the splits that a column calls held out, by how many rows have them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, name: object) -> None:
        self.counts[f"{name!s:.40}".strip()] += 1

    def remarks(self, column: str) -> Iterator[str]:
        """Of tests that are scored together with what a run is chosen by."""
        tests = [name for name in sorted(self.counts) if name.lower().startswith("test")]
        others = [name for name in sorted(self.counts) if name not in tests]
        if tests and others:
            told = listed((f"{name} ({self.counts[name]:,} rows)" for name in (*others, *tests)), at_most=6)
            yield (
                f"its held-out rows are of {told} and are scored together, so that what is chosen by held-out scores "
                f"(patience, keep_best, --step best) is chosen by {tests[0]}, too; name the rows that are meant "
                f"(rows: {{{column}: [{', '.join(others)}]}} and what is trained on to train, rows: "
                f"{{{column}: [{', '.join(tests)}]}} to score in the end)"
            )
