"""A lane: an endless sequence of rows, the same on every machine, that can be saved and gone on with.

A lane draws documents, plans them, keeps a look-ahead of planned ones and fills rows from it. Long texts come piece by
piece (``LongTexts``). Its state is a cursor and the draws of the documents that wait: a few numbers, no data.

Filling a row, which takes headers alone, and decoding what is in it do not depend on each other: whoever has the lane
may decode one turn and leave the next to another who has it too, and what comes after is the same.

A sample that is known to kill the process is dropped where it would kill it: as it is planned, or, having been
planned and waited like any other, as it is decoded. So a lane's rows are the same whether it dies of the sample
itself or is told, early or late, by another lane's death; as long as the sample kills each time, at the same point.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Any

import numpy as np

from kosmos.data import waiting_media
from kosmos.data.batch import PackedArrays, Room, RowCells, lay_out, no_room
from kosmos.data.decoding import decode_cells
from kosmos.data.document import Document
from kosmos.data.foreign import called, calling
from kosmos.data.long_texts import LongTexts
from kosmos.data.mixture import Cursor, Mixture
from kosmos.data.pack import choose
from kosmos.data.plan import DocumentPlan, PlannedMedia, Planner
from kosmos.data.quarantine import Incident, UselessData
from kosmos.data.shuffle import blocks_of
from kosmos.data.which_medium import naming
from kosmos.errors import DataError, SampleError
from kosmos.open_limit import too_many_open

Draw = tuple[int, int, int]
"""Source, draw number, piece of the document."""
ROWS_AHEAD = 2
"""Rows that the documents which wait fill at least: a look-ahead of many short ones may not fill one."""
MAX_FRUITLESS = 2_000
"""Samples in turn of which nothing could be used, after which the data are held to be useless."""
PLAN, DECODE = 0, 1
Touch = tuple[int, int, int]
"""Source, row, and what is done to the sample: ``PLAN`` (it is read and planned) or ``DECODE``."""
Watch = Callable[[Touch | None], None]
"""Told before a sample is touched, and None after, so that a death of the process can be laid to it."""


@dataclass(frozen=True)
class Feed:
    """All that lanes share. Picklable: data workers get it whole."""

    mixture: Mixture
    planner: Planner
    look_ahead: int
    streams: tuple[str, ...]
    deadly: Mapping[Touch, str] = field(default_factory=dict)
    """What has killed a process, and how."""


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
    used: float
    """Documents that the lane has drawn and that wait no longer, long texts in parts. Those that cannot be used are
    held to come in the same measure as the others."""
    used_of: tuple[float, ...] = ()
    """The same of each source, where they have weights; else nothing."""


@dataclass(slots=True)
class Empty:
    """A turn of a lane of which every document was broken."""

    incidents: list[Incident]
    drawn: int
    state: dict[str, Any]


@dataclass
class Lane:
    """See the module."""

    feed: Feed
    number: int
    watch: Watch = lambda touch: None
    room: Room = np.empty
    """Where the arrays of rows are made."""
    pending: list[tuple[Draw, DocumentPlan]] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    drawn: int = 0

    def __post_init__(self) -> None:
        self.cursor = Cursor(self.feed.mixture, self.number, length_of=self._first_length)
        self.texts = LongTexts()
        self._held = 0  # bytes of media that wait
        self._read_alone = cache(self._is_read_alone)

    def state(self) -> dict[str, Any]:
        return {**self.cursor.state(), "pending": [list(draw) for draw, _ in self.pending], **self.texts.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``; the documents that waited are planned again."""
        self.cursor.load(state)
        plans = cache(self.plans)
        for source, draw, piece in state["pending"]:
            if piece < len(plans(source, draw)):
                self.pending.append(((source, draw, piece), plans(source, draw)[piece]))
        self.texts.load(state, plans)

    def turn(self) -> Row | Empty | None:
        """Fill one row; None at the end of a mixture that is read once.

        Raises:
            UselessData: sample after sample is unusable.
        """
        return self._row(self.room, self._decode)

    def outline(self) -> Row | Empty | None:
        """As ``turn``, by headers alone: nothing is decoded, and what cells hold is without memory or meaning."""
        return self._row(no_room, _left)

    def _row(self, room: Room, put: Callable[[Draw, DocumentPlan, RowCells], bool]) -> Row | Empty | None:
        """
        Args:
            put: puts the cells of a document into the row; False where it cannot, which leaves the document out.
        """
        chosen = self._choose()
        if chosen is None:
            return None
        cells = RowCells([plan for _, plan in chosen], self.feed.planner.routes, self.feed.streams, room)
        whole = [(draw, plan) for draw, plan in chosen if put(draw, plan, cells)]
        incidents, drawn = self._told()
        if not whole and (self.pending or self.feed.mixture.once is None):
            return Empty(incidents, drawn, self.state())
        names = [self.feed.mixture.sources[source].name for (source, _, _), _ in whole]
        arrays = lay_out([plan for _, plan in whole], names, cells.values())
        return Row(self.number, arrays, incidents, drawn, self.state(), self._used(), self._used_of())

    def _used(self) -> float:
        waiting = sum(plan.share for _, plan in self.pending) + sum(self.texts.left().values())
        return _come(sum(self.cursor.draws), sum(self.cursor.fruitless), waiting)

    def _used_of(self) -> tuple[float, ...]:
        if self.feed.mixture.by_documents:
            return ()
        waiting = defaultdict[int, float](float, self.texts.left())
        for (source, _, _), plan in self.pending:
            waiting[source] += plan.share
        counts = enumerate(zip(self.cursor.draws, self.cursor.fruitless, strict=True))
        return tuple(_come(drawn, bad, waiting[source]) for source, (drawn, bad) in counts)

    def skip(self) -> bool:
        """Leave a turn to others, who decode it and tell what was wrong; False at the end. Raises as ``turn``."""
        chosen = self._choose()
        self._told()
        return chosen is not None

    def _choose(self) -> list[tuple[Draw, DocumentPlan]] | None:
        """The documents of a row, which wait no longer."""
        self._fill()
        if not self.pending:
            return [] if self.incidents else None
        planner = self.feed.planner
        taken = choose([plan for _, plan in self.pending], planner.max_tokens, planner.max_cells)
        chosen, left = [self.pending[i] for i in taken], set(range(len(self.pending))).difference(taken)
        self.pending = [self.pending[i] for i in sorted(left)]
        return chosen

    def _told(self) -> tuple[list[Incident], int]:
        """Incidents and draws since the turn before."""
        told = self.incidents, self.drawn
        self.incidents, self.drawn = [], 0
        return told

    def _fill(self) -> None:
        fruitless, tokens = 0, sum(len(plan) for _, plan in self.pending)
        self._held = sum(plan.held for _, plan in self.pending)
        wanted = ROWS_AHEAD * self.feed.planner.max_tokens if self.feed.look_ahead > 1 else 0  # one stays one
        while len(self.pending) < self.feed.look_ahead or tokens < wanted:
            source = self.cursor.pick(self.texts.left())
            if source is None:
                return
            taken = self._take(source)
            self.cursor.count(source, sum(len(plan) for _, plan in taken))
            self.pending += taken
            tokens += sum(len(plan) for _, plan in taken)
            fruitless = 0 if taken else fruitless + 1
            if fruitless >= self._patience:
                what = f"no sample of the sources can be used ({fruitless} were tried in turn)"
                raise UselessData.of(what, self.incidents)

    def _take(self, source: int) -> list[tuple[Draw, DocumentPlan]]:
        """The next document of a source, or of a long text the next piece; nothing where it cannot be used."""
        if (given := self.texts.give(source)) is not None:
            draw, piece, plan = given
            return [((source, draw, piece), plan)]
        draw = self.cursor.draw(source)
        plans = self.plans(source, draw)
        self.drawn += 1
        if self.feed.mixture.once is None:
            self.texts.add(source, draw, plans)
            plans = plans[:1]
        return [((source, draw, piece), plan) for piece, plan in enumerate(plans)]

    @property
    def _patience(self) -> float:
        """Fruitless draws in turn that are borne. A mixture that is read once comes to its end by itself."""
        mixture = self.feed.mixture
        return math.inf if mixture.once is not None else min(MAX_FRUITLESS, 2 * sum(map(len, mixture.sources)) + 100)

    def plans(self, source: int, draw: int) -> list[DocumentPlan]:
        """Of a draw; none where it cannot be used, which ``incidents`` tells."""
        return self.read(source, draw)[1]

    def _first_length(self, source: int) -> int | None:
        """Tokens of what a source gives this lane first, and of its first piece; None where that cannot be used, which
        is told when it is drawn."""
        told, held = len(self.incidents), self._held
        plans = self.plans(source, self.number)
        del self.incidents[told:]
        self._held = held
        return len(plans[0]) if plans else None

    def read(self, source: int, draw: int) -> tuple[Document | None, list[DocumentPlan]]:
        """The document of a draw, where it could be read, and its ``plans``."""
        return self.read_row(source, self.feed.mixture.row(source, draw))

    def read_row(self, source: int, row: int) -> tuple[Document | None, list[DocumentPlan]]:
        """As ``read``, by the number of the document in its source."""
        document: Document | None = None
        try:
            with _Touching(self, (source, row, PLAN)):
                document = self._document(source, row)
                plans = [p for p in self.feed.planner.plan(document) if np.count_nonzero(p.train)]
            if not plans:
                raise SampleError("holds nothing to learn: no text that the loss looks at")
            return document, [self._to_wait(source, plan) for plan in plans]
        except SampleError as error:
            self._refuse_gone(source, error)
            self._quarantine(document.origin if document else self.origin(source, row), source, error)
            return document, []

    def _to_wait(self, source: int, plan: DocumentPlan) -> DocumentPlan:
        """The plan, without its media where too much waits already."""
        if plan.held and self._held + plan.held > waiting_media.MOST_HELD_BYTES and self._read_alone(source):
            return waiting_media.let_go(plan)
        self._held += plan.held
        return plan

    def _is_read_alone(self, source: int) -> bool:
        """Whether a document costs no more than itself to be read again."""
        return blocks_of(self.feed.mixture.sources[source]) is None

    def origin(self, source: int, row: int) -> str:
        """A sample's name before it is read."""
        try:
            with calling(self.feed.mixture.sources[source], "origin"):
                return self.feed.mixture.origin(source, row)
        except SampleError as error:
            return f"{self.feed.mixture.sources[source].name}: row {row} ({error})"

    def _document(self, source: int, row: int) -> Document:
        giver = self.feed.mixture.sources[source]
        with calling(giver, "document"):
            document = giver.document(row)
        if not isinstance(document, Document):
            raise SampleError(f"{called(giver, 'document')}: expected a Document, got {type(document).__name__}")
        segments: object = document.segments
        if not isinstance(segments, tuple | list):
            what = type(segments).__name__
            raise SampleError(f"{called(giver, 'document')}: expected a tuple of segments, got {what}")
        return document

    def _decode(self, draw: Draw, plan: DocumentPlan, cells: RowCells) -> bool:
        """Put what the media of a document hold into the row; False where they are broken, and nothing was put."""
        if not plan.media:
            return True
        source, before = draw[0], dict(cells.filled)
        try:
            row = self.feed.mixture.row(source, draw[1])
            with _Touching(self, (source, row, DECODE)):
                if plan.let_go:
                    plan = waiting_media.read_again(plan, self.feed.planner.usable(self._document(source, row))[0])
                for media in plan.media_by_document:  # of a pair both are shown the same: each draws from the beginning
                    random = self.feed.mixture.random(source, draw[1]) if self.feed.planner.augments else None
                    self._decode_media(media, plan, random, cells)
        except SampleError as error:
            self._refuse_gone(source, error)
            cells.filled = before
            self._quarantine(plan.origin, source, error, plan.share)
            return False
        return True

    def _decode_media(
        self, found: Sequence[PlannedMedia], plan: DocumentPlan, random: np.random.Generator | None, cells: RowCells
    ) -> None:
        """Those of one document."""
        for number, media in enumerate(found):
            processor = self.feed.planner.routes[media.media.modality].processor
            try:
                with calling(processor, "decode"):
                    values = decode_cells(media, processor, random)
            except SampleError as error:
                raise naming(error, number, [m.media for m in found], plan.origin) from error
            cells.put(media.stream, values)

    def _refuse_gone(self, source: int, error: SampleError) -> None:
        """Raises DataError where a folder that the source was opened from is gone, and TooManyOpen where nothing can be
        opened any more: the sample is not at fault."""
        if (many := too_many_open(error)) is not None:
            raise many from error
        giver = self.feed.mixture.sources[source]
        gone = [place for place in getattr(giver, "places", ()) if not os.path.isdir(place)]
        if gone and self.feed.mixture.once is None:
            raise DataError(f"{giver.name}: {gone[0]} is no more there ({error})") from error

    def _quarantine(self, origin: str, source: int, error: SampleError, share: float = 1.0) -> None:
        name = self.feed.mixture.sources[source].name
        self.incidents.append(Incident(origin, name, error.code, str(error).removeprefix(f"{origin}: "), share))


def _come(drawn: int, fruitless: int, waiting: float) -> float:
    """Documents that wait no longer, of so many that were drawn."""
    usable = drawn - fruitless
    return (usable - waiting) * drawn / usable if usable else 0.0


def _left(draw: Draw, plan: DocumentPlan, cells: RowCells) -> bool:
    cells.leave(plan)
    return True


class _Touching:
    """Around what is done to a sample: it is watched, and one that is known to kill is not touched."""

    __slots__ = ("lane", "touch")

    def __init__(self, lane: Lane, touch: Touch) -> None:
        self.lane, self.touch = lane, touch

    def __enter__(self) -> None:
        if (cause := self.lane.feed.deadly.get(self.touch)) is not None:
            raise SampleError(cause)
        self.lane.watch(self.touch)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, MemoryError):  # not the sample's fault for sure, so the run ends; but say where
                error.add_note(f"at {self.lane.origin(*self.touch[:2])}")
        finally:
            self.lane.watch(None)
