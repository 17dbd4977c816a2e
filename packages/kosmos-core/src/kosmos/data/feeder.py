"""Rows for the trainer: from lanes in this process, or from worker processes that may die.

Where there are fewer lanes than workers, several have the same lane: each fills all of its rows, which takes headers
alone, and decodes those of its own turns.

A worker that dies (a decoder that segfaults) or hangs is started again from the last rows that were taken;
the sample that it was at is put in quarantine. What it knows of deadly samples only it and those that are
started later are told, which changes no row (see ``kosmos.data.lane``): rows and their order are the same
with any number of workers, as long as a sample that kills does so each time. Where a process was killed from
outside, such as by the kernel for want of memory, the same rows are made again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from time import perf_counter
from typing import Any, Protocol

from kosmos.data.lane import PLAN, Empty, Feed, Lane, Row, Touch
from kosmos.data.orders import Place, Share, SharedFeed
from kosmos.data.quarantine import Incident, UselessData
from kosmos.data.supervisor import HANG_S, Died, StopWaiting, Supervisor, sample_hang_s

__all__ = ["Feeder", "StopWaiting", "open_feeder", "sample_hang_s"]

MAX_EMPTY_ROWS = 50
"""Rows in turn of which every document was broken, after which the data are held to be useless."""


def _never() -> bool:
    return False


class Feeder(Protocol):
    """Gives the rows of this process's lanes, step by step."""

    def next_step(self, should_stop: Callable[[], bool] = _never) -> list[Row]:
        """One row of each lane, in the lanes' order. Lanes at their end are left out; empty when all are.

        Args:
            should_stop: asked now and then while a row is waited for (twice a second with workers, before each
                row without).

        Raises:
            StopWaiting: ``should_stop`` said so. The feeder's state is as before the call, and the next call gives
                the rows that this one would have given.
        """
        ...

    def state(self) -> dict[str, Any]:
        """What the rows given so far leave behind: enough to go on."""
        ...

    def steps_ahead(self) -> int:
        """Steps whose rows, or some of them, are made already or under way: they are waited for less than later ones.

        0 where rows are made as they are taken.
        """
        ...

    def close(self) -> None: ...

    feed: Feed
    """What is read."""
    waited_s: float
    """Seconds that the last step's rows were waited for."""
    torn: str
    """The first document of those rows whose pieces may have lost their sense; "" for none."""
    alone: str
    """What to add where a wait for rows does not end, if no other process decodes them."""


def open_feeder(
    feed: Feed,
    lanes: Sequence[int],
    *,
    workers: int,
    state: Mapping[str, Any] | None = None,
    hang_s: float | None = HANG_S,
    moved: Callable[[], None] = lambda: None,
) -> Feeder:
    """Start feeding ``lanes``.

    Args:
        workers: processes that decode; 0 decodes in this one.
        state: what ``Feeder.state`` gave, of any number of processes and workers.
        hang_s: seconds that a worker may be at one sample; then the process is ended and the sample put in
            quarantine. None waits for ever.
        moved: called when a worker has died while a row was waited for, and starts again.
    """
    states: dict[int, Any] = dict.fromkeys(lanes)
    if state is not None:
        feed = as_known(feed, state)
        states = {lane: state["lanes"][str(lane)] for lane in lanes}
    return WorkerFeeder(feed, states, workers, hang_s, moved) if workers else InlineFeeder(feed, states)


def as_known(feed: Feed, state: Mapping[str, Any]) -> Feed:
    """A feed that knows the deadly samples of what ``Feeder.state`` gave."""
    return replace(feed, deadly=dict(_deadly(entry) for entry in state["deadly"]))


def _deadly(entry: Sequence[Any]) -> tuple[Touch, str]:
    """A deadly sample from a state. Those of old checkpoints say neither what was done to it nor how it ended."""
    source, row, action, cause = (
        entry if len(entry) == 4 else (*entry, PLAN, "its decoder died; the file, or what reads it, is broken")
    )
    return (int(source), int(row), int(action)), str(cause)


class _Steps(ABC):
    """Steps of rows, and the states of lanes after those that the trainer took."""

    alone = ""

    def __init__(self, feed: Feed, states: dict[int, Any]) -> None:
        self.feed = feed
        fresh = {n: Lane(feed, n).state() for n, s in states.items() if s is None}
        self.states = {**states, **fresh}
        self.step: dict[int, Row | None] = {}
        """Rows of the step under way, by lane."""
        self.places = {lane: Place(0, state) for lane, state in self.states.items()}
        """Where each lane is, rows of the step under way included."""
        self._empty: dict[int, list[Empty]] = {lane: [] for lane in self.states}
        """Turns since the last row."""
        self.waited_s = 0.0
        self.torn = ""

    def next_step(self, should_stop: Callable[[], bool] = _never) -> list[Row]:
        begin = perf_counter()
        try:
            for lane in self.states:
                if lane not in self.step:
                    self.step[lane] = self._row(lane, should_stop)
        except UselessData as error:
            error.incidents = tuple(dict.fromkeys([*self._untold(), *error.incidents]))
            raise
        rows = [row for row in self.step.values() if row is not None]
        self.states.update({row.lane: row.state for row in rows})
        self.torn = self.torn or next((d.origin for row in rows for d in row.arrays.documents if d.is_torn), "")
        self.step = {}
        self.waited_s = perf_counter() - begin
        return rows

    def _untold(self) -> Iterator[Incident]:
        """What was bad of a step under way, whose rows nobody is given."""
        for row in self.step.values():
            yield from row.incidents if row is not None else ()
        for turns in self._empty.values():
            yield from (incident for turn in turns for incident in turn.incidents)

    def _row(self, lane: int, should_stop: Callable[[], bool]) -> Row | None:
        """The lane's next row, which tells of the empty turns before it; None at its end."""
        before = self._empty[lane]
        while (found := self._turn(lane, should_stop)) is not None:
            self.places[lane] = Place(self.places[lane].turn + 1, found.state)
            if isinstance(found, Row):
                found.incidents = [*(i for empty in before for i in empty.incidents), *found.incidents]
                found.drawn += sum(empty.drawn for empty in before)
                before.clear()
                return found
            before.append(found)
            if len(before) >= MAX_EMPTY_ROWS and self.feed.mixture.once is None:  # else it comes to its end by itself
                bad = [incident for empty in before for incident in empty.incidents]
                raise UselessData.of(f"{MAX_EMPTY_ROWS} rows in turn hold no usable sample", bad)
        return None

    @abstractmethod
    def _turn(self, lane: int, should_stop: Callable[[], bool]) -> Row | Empty | None:
        """What the lane's next turn gives; None at its end."""

    def state(self) -> dict[str, Any]:
        lanes = {str(lane): state for lane, state in self.states.items()}
        return {"lanes": lanes, "deadly": sorted([*touch, cause] for touch, cause in self.feed.deadly.items())}


class InlineFeeder(_Steps):
    """Decodes in this process: no second process, and no protection from decoders that crash or hang."""

    alone = " in this process (with data.workers=1 a sample that hangs is named and left out)"

    def __init__(self, feed: Feed, states: dict[int, Any]) -> None:
        super().__init__(feed, states)
        self.lanes = {number: Lane(feed, number) for number in states}
        for number, lane in self.lanes.items():
            lane.load(self.states[number])

    def _turn(self, lane: int, should_stop: Callable[[], bool]) -> Row | Empty | None:
        if should_stop():
            raise StopWaiting
        return self.lanes[lane].turn()

    def steps_ahead(self) -> int:
        return 0

    def close(self) -> None:
        self.lanes.clear()


class WorkerFeeder(_Steps):
    """Decodes in worker processes; see ``_shares``."""

    def __init__(
        self,
        feed: Feed,
        states: dict[int, Any],
        workers: int,
        hang_s: float | None = HANG_S,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(feed, states)
        self.moved = moved
        self.workers: list[Supervisor] = []
        self.owners: dict[int, list[Supervisor]] = {lane: [] for lane in states}
        """Of each lane, by turns."""
        shares = _shares(list(states), workers if feed.streams else min(workers, len(states)))
        try:
            with SharedFeed(feed) as shared:
                for share in shares:
                    worker = Supervisor(share, hang_s)
                    worker.start(shared, self.places)
                    self.workers.append(worker)
                    for lane in share:
                        self.owners[lane].append(worker)
        except BaseException:
            self.close()
            raise

    def _turn(self, lane: int, should_stop: Callable[[], bool]) -> Row | Empty | None:
        owners, place = self.owners[lane], self.places[lane]
        worker = owners[place.turn % len(owners)]
        again = False
        while lane not in worker.ended:
            taken = worker.take(lane, should_stop)
            if isinstance(taken, Died):
                self.moved()
                if (blamed := worker.autopsy()) is not None:
                    self.feed = replace(self.feed, deadly={**self.feed.deadly, blamed[0]: blamed[1]})
                self._start(worker)
            elif again or taken.before in (None, place.state):
                if taken.found is None:
                    worker.ended.add(lane)
                return taken.found
            else:
                # A file that one of a lane's workers could not read, and another could: they go on from one state. It
                # is this one's where it cannot come to the other's, so that the others will come to it.
                worker.stop()
                self._start(worker)
                again = True
        return None

    def _start(self, worker: Supervisor) -> None:
        with SharedFeed(self.feed) as shared:
            worker.start(shared, self.places)

    def steps_ahead(self) -> int:
        turns = sum(worker.ahead for worker in self.workers)
        return ceil(turns / max(1, len(self.states))) + 1  # the one under way

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.workers.clear()
        self.owners.clear()
        self.step.clear()


def _shares(lanes: Sequence[int], workers: int) -> list[dict[int, Share]]:
    """Of each worker: whole lanes, or its turns of one where there are fewer lanes than workers."""
    if workers <= len(lanes):
        return [dict.fromkeys(lanes[i::workers], Share(0, 1)) for i in range(workers)]
    of = [len(range(i, workers, len(lanes))) for i in range(len(lanes))]
    return [{lanes[i % len(lanes)]: Share(i // len(lanes), of[i % len(lanes)])} for i in range(workers)]
