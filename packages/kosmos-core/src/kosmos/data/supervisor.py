"""One worker process, watched: its pipe, the thread that empties it, its silences and its deaths."""

from __future__ import annotations

import errno
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from kosmos.data.foreign import first_line
from kosmos.data.lane import Empty, Row, Touch
from kosmos.data.marker import NBYTES, Marker
from kosmos.data.orders import Place, Share, SharedFeed
from kosmos.data.shared_rows import RowReceiver, open_slots
from kosmos.errors import DataError
from kosmos.open_limit import ADVISED, IN_VAIN

PROGRAM = Path(__file__).with_name("worker.py")
MAX_DEATHS = 20
"""Deaths of a worker in turn, without a row between, after which the run stops."""
MAX_STILLBORN = 3
"""The same for deaths before the first sample, which a file cannot be blamed for."""
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Variables of a worker, whatever the trainer's are: a worker is one core's."""
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(16 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
"""Variables of a worker, unless the user set them: what decoding frees is kept for the next file (glibc)."""
HANG_S = 300.0
"""Seconds that a worker may be at one sample (or between two) while its row is waited for."""
POLL_S = 0.5
"""Seconds between two looks at whether to go on waiting."""
FAULTS = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP}
)
"""Signals by which a process dies of its own doing. Others come from outside: from the kernel, short of memory, or a
person."""


class StopWaiting(Exception):
    """The caller asked to stop while rows were waited for. No row is lost: state and order are as before the call."""


class WorkerTraceback(Exception):
    """Where in a worker an error came up, as text: the cause of what is raised here, which ``--debug`` shows."""

    def __str__(self) -> str:
        return f"\n{super().__str__()}"


class Died:
    """Stands for a row where the process is dead."""


DIED: Final = Died()


class Taken(NamedTuple):
    """What a turn of a lane gave."""

    before: dict[str, Any] | None
    """The lane's state before it, where others have the lane too."""
    found: Row | Empty | None
    """None at the lane's end."""


def sample_hang_s(run_hang_s: float) -> float:
    """Of a worker, in a run that ends after so many seconds without progress: a sample is to cost itself alone."""
    return min(HANG_S, run_hang_s / 2)


class Supervisor:
    """See the module.

    Args:
        shares: lanes of this worker, and what of each is its own.
        hang_s: ``HANG_S`` or less, or None to wait for ever.
    """

    PREFETCH = 2
    """Rows that wait in this process, for each lane of the worker; one where others have the lane too."""

    def __init__(self, shares: Mapping[int, Share], hang_s: float | None) -> None:
        self.shares, self.hang_s = dict(shares), hang_s
        self.waiting = sum(self.PREFETCH if share.of == 1 else 1 for share in shares.values())
        self.ended: set[int] = set()
        """Lanes of which nothing more is wanted."""
        self.deaths = self.taken = 0
        self.suspect: Touch | None = None

    def start(self, shared: SharedFeed, places: Mapping[int, Place]) -> None:
        """Start the process, at these places of the lanes that have not ended.

        Raises:
            DataError: the system starts no process.
        """
        going = {lane: share for lane, share in self.shares.items() if lane not in self.ended}
        orders = shared.places, {lane: (share, places[lane]) for lane, share in going.items()}
        self.feed = shared.feed
        self._forget_rows()
        self.stopping = threading.Event()
        self.hung_at: int | None = None
        try:
            with tempfile.TemporaryFile() as touched:
                touched.truncate(NBYTES)
                self.marker = Marker(touched.fileno())
                self.marker.clear()
                orders_in, rows = self._spawn(touched.fileno(), shared.fd)
        except OSError as error:
            what = "raise the largest size of files (ulimit -f)" if error.errno == errno.EFBIG else "lower data.workers"
            what += f", or raise how many files a process may open (ulimit -n {ADVISED})" * (error.errno in IN_VAIN)
            raise DataError(f"a data worker cannot be started ({first_line(error)}); {what}") from error
        given = (orders, orders_in, rows, self.inbox, self.stopping)
        self.reader = threading.Thread(target=_converse, args=given, daemon=True)
        self.reader.start()

    def _forget_rows(self) -> None:
        """What was sent and not taken, which keeps the memory that it lies in."""
        self.inbox: queue.Queue[Any] = queue.Queue(self.waiting)
        self.ready: dict[int, list[Taken]] = {lane: [] for lane in self.shares}
        self.taken = 0

    def _spawn(self, marker: int, feed: int) -> tuple[Connection, RowReceiver]:
        """The process, and this side's ends for orders and rows. Raises OSError, and leaves nothing open then."""
        with ExitStack() as theirs, ExitStack() as ours:
            orders_out, orders_in = os.pipe()
            theirs.callback(os.close, orders_out)
            orders = ours.enter_context(Connection(orders_in, readable=False))
            rows_out, rows_in = os.pipe()
            theirs.callback(os.close, rows_in)
            rows = ours.enter_context(Connection(rows_out, writable=False))
            memory = open_slots(self.waiting + 2 * len(self.shares) + 2)
            theirs.callback(os.close, memory)
            receiver = RowReceiver(rows, memory)
            self.process = self._start_process((orders_out, rows_in, memory, marker, feed))
            ours.pop_all()
        return orders, receiver

    @staticmethod
    def _start_process(given: tuple[int, ...]) -> subprocess.Popen[bytes]:
        # Blocked from its first instruction on: a signal to the whole group is the trainer's, not a broken sample.
        others = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, others)
        try:
            return subprocess.Popen(
                # Without -P Python would look for its own modules in the working folder first, which may hold data.
                [sys.executable, "-P", str(PROGRAM), *map(str, given)],
                pass_fds=given,
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a decoder prints is not the answer of a command, which may be JSON
                env={**MALLOC, **os.environ, **THREADS},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def take(self, lane: int, should_stop: Callable[[], bool]) -> Taken | Died:
        """What the next of its turns of the lane gave.

        Raises:
            StopWaiting: ``should_stop`` said so before it came.
            KosmosError: the worker's own.
            MemoryError: in the worker.
        """
        while not self.ready[lane]:
            item = self._receive(should_stop)
            if isinstance(item, Died):
                return item
            number, taken = item
            if not isinstance(number, int):
                text, trace, incidents = taken
                failure = number(text)
                if incidents:
                    failure.incidents = incidents
                raise failure from (WorkerTraceback(trace) if trace else None)
            self.ready[number].append(Taken(*taken))
        self.deaths = 0
        self.taken += 1
        return self.ready[lane].pop(0)

    def _receive(self, should_stop: Callable[[], bool]) -> Any:
        """What the worker sends next. One that is at the same sample for too long is killed."""
        still_s, seen, looked = 0.0, self.marker.count, monotonic()
        while True:
            gone = self.process.poll() is not None or not self.reader.is_alive()
            try:
                return self.inbox.get(timeout=POLL_S)
            except queue.Empty:
                if gone:  # and its pipe does not end: a process that it started still holds it
                    return DIED
            if should_stop():
                raise StopWaiting
            count, now = self.marker.count, monotonic()
            # Not simply the time that went by: this process may have been suspended, and the worker with it.
            still_s = still_s + min(now - looked, 2 * POLL_S) if count == seen else 0.0
            seen, looked = count, now
            if self.hang_s is not None and still_s > (self.hang_s if self.marker.touch else max(self.hang_s, HANG_S)):
                self.hung_at = count
                self.process.kill()

    @property
    def ahead(self) -> int:
        """Turns that the process has behind it and nobody has taken: here, on their way, or held back there."""
        return self.marker.made - self.taken

    def autopsy(self) -> tuple[Touch, str] | None:
        """What killed the process, and how, where a sample is to blame for it.

        A fault at a sample, or standing still there, is the sample's. A signal from outside is laid to it
        only where it comes twice in turn at the same sample; between samples nobody is blamed.

        Raises:
            DataError: it dies again and again.
        """
        status = self._status()
        touch, hung = self.marker.touch, self.hung_at == self.marker.count
        self.stop()
        self.deaths += 1
        if self.deaths >= (MAX_DEATHS if self.marker.count else MAX_STILLBORN):
            raise DataError(self._obituary(status, touch, hung=hung))
        suspect, self.suspect = self.suspect, None
        if touch is None:
            return None
        if hung:
            return touch, f"its decoder hung for {self.hang_s:g} s"
        if status >= 0 or -status in FAULTS:
            return touch, f"its decoder died ({_how(status)}); the file, or what reads it, is broken"
        if touch == suspect:
            why = "it takes too much memory, or the file, or what reads it, is broken"
            return touch, f"its decoder died twice ({_how(status)}); {why}"
        self.suspect = touch
        return None

    def _status(self) -> int:
        try:
            return self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:  # it closed the pipe, or sent what is no row, and lives
            self.process.kill()
            return self.process.wait()

    def _obituary(self, status: int, touch: Touch | None, *, hung: bool) -> str:
        begun = self.marker.count > 0
        at = f"at {self.feed.mixture.origin(*touch[:2])}" if touch else "between samples" if begun else "as it started"
        if hung:
            why = "it stood still and was ended: data.workers=0 shows where it hangs"
        elif status == -signal.SIGKILL:
            why = "most likely memory ran out: lower data.workers or data.look_ahead"
        else:
            why = "most likely a library that a plugin loads is broken: data.workers=0 shows how"
        return f"a data worker died {self.deaths} times in turn, the last time by {_how(status)} {at}; {why}"

    def stop(self) -> None:
        """End the process and its thread; rows that were not taken are gone."""
        self.stopping.set()
        self.process.kill()
        self.process.wait()
        self.reader.join(timeout=5)
        self._forget_rows()  # now, not when this object goes: a session that has ended, or an error, may hold it


def _how(status: int) -> str:
    names = {number.value: number.name for number in signal.Signals}
    return names.get(-status, f"signal {-status}") if status < 0 else f"exit status {status}"


def _converse(
    orders: Any, orders_in: Connection, rows: RowReceiver, inbox: queue.Queue[Any], stopping: threading.Event
) -> None:
    """Give the worker its orders, then take its rows, until it is dead. Runs in a thread: both may have to wait."""
    with orders_in, rows.pipe:
        try:
            orders_in.send(sys.path)
            orders_in.send(orders)
            orders_in.close()
            while not stopping.is_set():
                _put(rows.receive(), inbox, stopping)
        except (EOFError, OSError):
            _put(DIED, inbox, stopping)


def _put(item: Any, inbox: queue.Queue[Any], stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            inbox.put(item, timeout=0.2)
            return
        except queue.Full:
            continue
