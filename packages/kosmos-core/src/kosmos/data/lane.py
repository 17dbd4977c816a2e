"""A lane: an endless sequence of rows, the same on every machine, that can be saved and gone on with.

A lane draws documents, plans them, keeps a look-ahead of planned ones and fills rows from it. Its state
is a cursor and the draws of the documents that wait: a few numbers, no data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kosmos.data.batch import PackedArrays, ReadyDocument, assemble
from kosmos.data.document import Document
from kosmos.data.mixture import Cursor, Mixture
from kosmos.data.pack import choose
from kosmos.data.plan import DocumentPlan, Planner, decode_cells
from kosmos.data.quarantine import Incident
from kosmos.errors import DataError, SampleError

Draw = tuple[int, int, int]
"""Source, draw number, piece of the document."""
MAX_EMPTY_ROWS = 50
"""Rows in turn of which every document was broken, after which the data are held to be useless."""
Watch = Callable[[int, int], None]
"""Told (source, row) before a sample is touched, so that a death of the process can be laid to it."""


@dataclass(frozen=True)
class Feed:
    """All that lanes share. Picklable: data workers get it whole."""

    mixture: Mixture
    planner: Planner
    num_lanes: int
    look_ahead: int
    streams: tuple[str, ...]
    deadly: frozenset[tuple[int, int]] = frozenset()
    """(source, row) of samples that have killed a decoder."""


@dataclass(slots=True)
class Row:
    """What a lane makes for one step."""

    lane: int
    arrays: PackedArrays
    incidents: list[Incident]
    drawn: int
    """Documents drawn while it was made."""
    state: dict[str, Any]
    """The lane's state after it."""


@dataclass
class Lane:
    """See the module."""

    feed: Feed
    number: int
    watch: Watch = lambda source, row: None
    pending: list[tuple[Draw, DocumentPlan]] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    drawn: int = 0

    def __post_init__(self) -> None:
        self.cursor = Cursor(self.feed.mixture, self.number, self.feed.num_lanes)

    def state(self) -> dict[str, Any]:
        return {**self.cursor.state(), "pending": [list(draw) for draw, _ in self.pending]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``; the documents that waited are planned again."""
        self.cursor = Cursor(
            self.feed.mixture, self.number, self.feed.num_lanes, list(state["draws"]), list(state["tokens"])
        )
        plans: dict[tuple[int, int], list[DocumentPlan]] = {}
        for source, draw, piece in state["pending"]:
            if (source, draw) not in plans:
                plans[source, draw] = self._plan(source, draw)
            if piece < len(plans[source, draw]):
                self.pending.append(((source, draw, piece), plans[source, draw][piece]))

    def next_row(self) -> Row | None:
        """Fill one row; None at the end of a mixture that is read once.

        Raises:
            DataError: sample after sample is unusable.
        """
        for _ in range(MAX_EMPTY_ROWS):
            self._fill()
            if not self.pending and not self.incidents:
                return None
            ready = self._take() if self.pending else []
            if ready or not self.pending:
                return self._finish(ready)
        raise DataError(f"{MAX_EMPTY_ROWS} rows in turn hold no usable sample; {self._last_incident()}")

    def _take(self) -> list[ReadyDocument]:
        planner = self.feed.planner
        taken = choose([plan for _, plan in self.pending], planner.max_tokens, planner.max_cells)
        chosen = [self.pending[i] for i in taken]
        self.pending = [p for i, p in enumerate(self.pending) if i not in set(taken)]
        return [r for draw, plan in chosen if (r := self._decode(draw, plan)) is not None]

    def _finish(self, ready: list[ReadyDocument]) -> Row:
        arrays = assemble(ready, self.feed.planner.routes, self.feed.streams)
        row = Row(self.number, arrays, self.incidents, self.drawn, self.state())
        self.incidents, self.drawn = [], 0
        return row

    def _last_incident(self) -> str:
        last = self.incidents[-1]
        return f"the last: {last.origin}: {last.cause}"

    def _fill(self) -> None:
        fruitless = 0
        while len(self.pending) < self.feed.look_ahead:
            drawn = self.cursor.next()
            if drawn is None:
                return
            source, draw = drawn
            plans = self._plan(source, draw)
            self.drawn += 1
            self.cursor.count(source, sum(len(p) for p in plans))
            self.pending += [((source, draw, piece), plan) for piece, plan in enumerate(plans)]
            fruitless = 0 if plans else fruitless + 1
            if fruitless > 2 * sum(len(s) for s in self.feed.mixture.sources) + 100:
                raise DataError(f"no sample of the sources can be used; {self._last_incident()}")

    def _plan(self, source: int, draw: int) -> list[DocumentPlan]:
        row = self.feed.mixture.row(source, draw)
        self.watch(source, row)
        origin = self.feed.mixture.origin(source, row)
        try:
            document = self._document(source, row)
            origin = document.origin
            plans = [p for p in self.feed.planner.plan(document) if p.train.any()]
            if not plans:
                raise SampleError("holds nothing to learn: no text that the loss looks at")
            return plans
        except SampleError as error:
            self._quarantine(origin, source, error)
            return []

    def _document(self, source: int, row: int) -> Document:
        if (source, row) in self.feed.deadly:
            raise SampleError("its decoder died (the process was killed by a signal); the file is broken")
        return self.feed.mixture.sources[source].document(row)

    def _decode(self, draw: Draw, plan: DocumentPlan) -> ReadyDocument | None:
        source = draw[0]
        if plan.media:
            self.watch(source, self.feed.mixture.row(source, draw[1]))
        cells: dict[str, list[Any]] = {}
        try:
            for media in plan.media:
                processor = self.feed.planner.routes[media.media.modality].processor
                cells.setdefault(media.stream, []).append(decode_cells(media, processor))
        except SampleError as error:
            self._quarantine(plan.origin, source, error)
            return None
        return ReadyDocument(plan, self.feed.mixture.sources[source].name, cells)

    def _quarantine(self, origin: str, source: int, error: SampleError) -> None:
        name = self.feed.mixture.sources[source].name
        self.incidents.append(Incident(origin, name, error.code, str(error).removeprefix(f"{origin}: ")))
