"""What turns the rows of a table into segments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from kosmos.data.document import Segment
from kosmos.data.sources.columns import Row


class Layout(Protocol):
    """Turns rows into segments. Picklable.

    One of rows that may be pairs of answers has a method ``both(row, root)``, too: the segments of the row, and those
    of the worse one, or none.
    """

    @property
    def columns(self) -> Mapping[str, str]:
        """Role or modality to the column that holds it, where that is named otherwise."""
        ...

    def check(self, columns: Collection[str]) -> None:
        """Raises DataError where a table of these columns lacks one that the layout needs."""
        ...

    def used(self, columns: Collection[str]) -> set[str]:
        """Those of a table's columns that ``segments`` may look at, and the id and the split."""
        ...

    def scanned(self, columns: Collection[str], plain: Collection[str] = ()) -> tuple[list[str], list[str]]:
        """Columns whose values ``needs`` and the split depend on; columns of media, which may be shown as ``THERE``.

        Args:
            plain: those of no bytes, lists or objects, so that their values cost little.
        """
        ...

    def nested(self, columns: Collection[str]) -> set[str]:
        """Those of a table's columns that may hold lists or objects, and no text that may begin like one."""
        ...

    def needs(self, row: Row) -> frozenset[str]:
        """Modalities of the row's media. Media may stand in the row as ``THERE`` in place of their bytes.

        Raises:
            SampleError: the row has no readable form.
        """
        ...

    def segments(self, row: Row, root: Path) -> tuple[Segment, ...]:
        """The segments of the row; media paths are looked for under ``root``.

        Raises:
            SampleError: this row cannot be used.
        """
        ...

    def references(self, row: Row) -> tuple[str, ...]:
        """As of ``Document``, of a row that has segments.

        Raises:
            SampleError: what the row has as right answers is something else.
        """
        ...
