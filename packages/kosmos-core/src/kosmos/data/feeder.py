"""Rows for the trainer: from lanes in this process, or from worker processes that may die.

A worker that is killed (a decoder that segfaults) is started again from the last rows that arrived;
the sample that it was at is put in quarantine. The order of rows is the same in all cases.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from mmap import mmap
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from kosmos.data.lane import Feed, Lane, Row
from kosmos.data.worker import NOTHING
from kosmos.errors import DataError

MAX_DEATHS = 20
"""Deaths of a worker in turn, without a row between, after which the run stops."""


class Feeder(Protocol):
    """Gives the rows of this process's lanes, step by step."""

    def next_step(self) -> list[Row]:
        """One row of each lane, in the lanes' order. Lanes at their end are left out; empty when all are."""
        ...

    def state(self) -> dict[str, Any]:
        """What the rows given so far leave behind: enough to go on."""
        ...

    def close(self) -> None: ...

    waited_s: float
    """Seconds that the last step's rows were waited for."""


def open_feeder(feed: Feed, lanes: Sequence[int], *, workers: int, state: Mapping[str, Any] | None = None) -> Feeder:
    """Start feeding ``lanes``. ``state`` is what ``Feeder.state`` gave, of any number of processes and workers."""
    states: dict[int, Any] = dict.fromkeys(lanes)
    if state is not None:
        feed = replace(feed, deadly=frozenset((int(s), int(r)) for s, r in state["deadly"]))
        states = {lane: state["lanes"][str(lane)] for lane in lanes}
    return WorkerFeeder(feed, states, workers) if workers else InlineFeeder(feed, states)


class _Remembered:
    """The states of lanes after the rows that the trainer took."""

    def __init__(self, feed: Feed, states: dict[int, Any]) -> None:
        self.feed = feed
        fresh = {n: Lane(feed, n).state() for n, s in states.items() if s is None}
        self.states = {**states, **fresh}
        self.waited_s = 0.0

    def state(self) -> dict[str, Any]:
        lanes = {str(lane): state for lane, state in self.states.items()}
        return {"lanes": lanes, "deadly": sorted(list(d) for d in self.feed.deadly)}


class InlineFeeder(_Remembered):
    """Decodes in this process: no second process, and no protection from decoders that crash."""

    def __init__(self, feed: Feed, states: dict[int, Any]) -> None:
        super().__init__(feed, states)
        self.lanes = {number: Lane(feed, number) for number in states}
        for number, lane in self.lanes.items():
            lane.load(self.states[number])

    def next_step(self) -> list[Row]:
        begin = perf_counter()
        rows = [row for lane in self.lanes.values() if (row := lane.next_row()) is not None]
        self.states.update({row.lane: row.state for row in rows})
        self.waited_s = perf_counter() - begin
        return rows

    def close(self) -> None:
        self.lanes.clear()


class WorkerFeeder(_Remembered):
    """Decodes in worker processes; lane i belongs to worker i mod workers."""

    def __init__(self, feed: Feed, states: dict[int, Any], workers: int) -> None:
        super().__init__(feed, states)
        lanes = list(states)
        shares = [lanes[i::workers] for i in range(min(workers, len(lanes)))]
        self.workers = [_Worker(feed, {n: self.states[n] for n in share}) for share in shares]
        self.owner = {lane: worker for worker, share in zip(self.workers, shares, strict=True) for lane in share}

    def next_step(self) -> list[Row]:
        begin = perf_counter()
        rows = [row for lane in self.states if (row := self._row(lane)) is not None]
        self.waited_s = perf_counter() - begin
        return rows

    def _row(self, lane: int) -> Row | None:
        worker = self.owner[lane]
        row = worker.take(lane)
        while row is _DIED:
            died = worker.autopsy()
            if died is not None:
                self.feed = replace(self.feed, deadly=self.feed.deadly | {died})
            worker.start(self.feed, {n: self.states[n] for n in worker.lanes if n not in worker.ended})
            row = worker.take(lane)
        if isinstance(row, Row):
            self.states[lane] = row.state
            worker.deaths = 0
            return row
        return None

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()


_DIED = object()


class _Worker:
    """One process, its pipe, and the thread that empties it."""

    PREFETCH = 2
    """Rows that wait in this process, for each lane of the worker."""

    def __init__(self, feed: Feed, states: dict[int, Any]) -> None:
        self.lanes = list(states)
        self.ended: set[int] = set()
        self.deaths = 0
        self.start(feed, states)

    def start(self, feed: Feed, states: dict[int, Any]) -> None:
        self.inbox: queue.Queue[Any] = queue.Queue(self.PREFETCH * len(self.lanes))
        self.ready: dict[int, list[Row | None]] = {lane: [] for lane in self.lanes}
        self.stopping = threading.Event()
        self.marker_file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        self.marker_file.truncate(16)
        self.marker = np.frombuffer(mmap(self.marker_file.fileno(), 16), np.int64)
        self.marker[:] = NOTHING
        self._spawn(feed, states)
        self.reader = threading.Thread(target=self._read, args=(self.rows, self.inbox, self.stopping), daemon=True)
        self.reader.start()

    def _spawn(self, feed: Feed, states: dict[int, Any]) -> None:
        orders_out, orders_in = os.pipe()
        rows_out, rows_in = os.pipe()
        given = (orders_out, rows_in, self.marker_file.fileno())
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        # Blocked from its first instruction on: a signal to the whole group is the trainer's, not a broken sample.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kosmos.data.worker", *(str(fd) for fd in given)],
                pass_fds=given,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **threads},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(orders_out)
        os.close(rows_in)
        self.rows = Connection(rows_out, writable=False)
        with Connection(orders_in, readable=False) as orders:
            orders.send(sys.path)
            orders.send((feed, states))

    @staticmethod
    def _read(rows: Connection, inbox: queue.Queue[Any], stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                item = rows.recv()
            except (EOFError, OSError):
                item = _DIED
            while not stopping.is_set():
                try:
                    inbox.put(item, timeout=0.2)
                    break
                except queue.Full:
                    continue
            if item is _DIED:
                return

    def take(self, lane: int) -> Any:
        """The lane's next row, None at its end, or ``_DIED``."""
        if lane in self.ended:
            return None
        while not self.ready[lane]:
            item = self.inbox.get()
            if item is _DIED:
                return _DIED
            number, row = item
            if not isinstance(number, int):
                raise number(row) if number else DataError(f"a data worker failed:\n{row}")
            self.ready[number].append(row)
        row = self.ready[lane].pop(0)
        if row is None:
            self.ended.add(lane)
        return row

    def autopsy(self) -> tuple[int, int] | None:
        """(source, row) of the sample at which the process died.

        Raises:
            DataError: it dies again and again.
        """
        status = self.process.wait()
        self.deaths += 1
        sample = (int(self.marker[0]), int(self.marker[1]))
        self.stop()
        if self.deaths > MAX_DEATHS or sample[0] == NOTHING:
            cause = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            at = f"at source {sample[0]}, row {sample[1]}" if sample[0] != NOTHING else "outside any sample"
            raise DataError(f"a data worker died {self.deaths} times in turn ({cause}, {at}); is memory short?")
        return sample

    def stop(self) -> None:
        self.stopping.set()
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.rows.close()
        self.marker_file.close()
