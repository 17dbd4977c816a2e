"""Whether every rank makes progress. One that stands still is named, with its phase and its last document."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from kosmos.errors import KosmosError, RankHangs, TrainingError
from kosmos.names import listed
from kosmos.runtime.parallel import Parallel, tells_of_end
from kosmos.train.ended import FAILED
from kosmos.train.goodput import Goodput

BEAT_S = 1.0
"""Seconds between two looks."""
RANKS_A_BEAT = 64
"""Of more ranks each looks at all the others less often: one process answers them all."""
SILENT_S = 5.0
"""Seconds after which a rank that leaves no word is held to be stopped or gone."""


class Store(Protocol):
    """Where ranks leave word for each other: torch's own, or nothing for one process."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def check(self, keys: list[str]) -> bool: ...

    def multi_get(self, keys: list[str]) -> list[bytes]: ...


GRACE_S = 5.0
"""Seconds in which a rank may end by itself once another has failed."""


@dataclass(frozen=True)
class Progress:
    """What a rank does."""

    count: int = 0
    """Goes up whenever something is done."""
    phase: str = "starting"
    step: int = 0
    document: str = ""
    where: str = ""
    """Line of code at which the rank is."""
    waits: bool = False
    """It is in an exchange with the others, and so is not the one that is waited for."""
    beat: int = 0
    """Goes up whenever word is left."""

    def __str__(self) -> str:
        document = f", last document {self.document}" if self.document else ""
        return f"{self.phase} of step {self.step}{document}, at {self.where}"


_TORCH = str(Path(torch.__file__).parent)
_NOT_OURS = (_TORCH, str(Path(os.__file__).parent), "<")
_EXCHANGES = (str(Path(_TORCH, "distributed")),)


class Watch:
    """A thread that leaves word of this rank and looks at that of all."""

    def __init__(
        self,
        parallel: Parallel,
        *,
        hang_s: float,
        store: Store | None,
        stop: Callable[[RankHangs], None],
    ) -> None:
        """
        Args:
            hang_s: seconds without progress after which a rank hangs.
            store: of all ranks; None for one process.
            stop: called at one rank, from the thread, with what to say. It does not return.
        """
        self.parallel, self.hang_s, self.store, self.stop = parallel, hang_s, store, stop
        self.progress = Progress()
        self.main = threading.get_ident()
        self.beat = 0
        self.seen: dict[tuple[int, str], tuple[int, float]] = {}
        self.asked = 0
        """How often the store was asked."""
        self.asks = False
        """Whether it was asked and has not answered, or never will."""
        self.ended = threading.Event()
        self.go_on = ""
        """What goes on with the run, where something was begun that can be gone on with."""
        self.thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self.thread.start()
        if self.store is not None:
            threading.Thread(target=self._mind, name="store", daemon=True).start()

    def close(self) -> None:
        self.ended.set()
        if self.thread.is_alive():
            self.thread.join(2 * BEAT_S)

    def ended_by(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Close it at the end of what it watched over, and tell an end of another rank's from one of its own.

        Raises:
            TrainingError: another rank has the cause.
        """
        status = None
        if error is not None and not isinstance(error, KosmosError):
            status = self.told()  # an exchange breaks where another rank leaves it
        if error is not None and status is None:
            self.tell(error.exit_status if isinstance(error, KosmosError) else 1)
        self.close()
        if status is not None:
            ended = TrainingError("another rank ended with an error")
            ended.exit_status, ended.elsewhere = status, True
            raise ended from error
        if self.parallel.world_size > 1 and isinstance(error, RuntimeError) and tells_of_end(error):
            gone = "another rank is gone without a word, such as for want of memory"
            raise TrainingError(f"{gone}; go on with: {self.go_on}" if self.go_on else gone) from error

    def at(self, phase: str, *, step: int | None = None, document: str | None = None) -> None:
        """The main thread begins something. What is not stated stays, ``""`` is no document."""
        now = self.progress
        self.progress = replace(
            now, count=now.count + 1, phase=phase, step=now.step if step is None else step,
            document=now.document if document is None else document,
        )  # fmt: skip

    def moved(self) -> None:
        """What the main thread is at goes on."""
        self.progress = replace(self.progress, count=self.progress.count + 1)

    def _run(self) -> None:
        while not self.ended.wait(BEAT_S):
            self.asked, self.asks = self.asked + 1, True
            try:
                status = self.told()
                everyone = self._exchange()
            except Exception:  # the store went with another rank, whose end is not ours to report
                return  # it still asks, and will have no answer: what then stands still for long is ended
            self.asks = False
            if status is not None and not self.ended.wait(GRACE_S):
                os._exit(status)  # the main thread waits for a rank that is gone
            found = self._hanging(everyone) if everyone is not None else None
            if found is not None and not self.ended.is_set():
                self.tell(found.exit_status)
                self.stop(found)
                return

    def _mind(self) -> None:
        """End this rank by what it knows itself, where a call of the store does not return, or has failed: it is served
        by a node that may be frozen or cut off.

        Looks are counted and not seconds: this process may have been stopped meanwhile, or its machine have slept.
        """
        looks, known = 0, (self.asked, self.progress.count)
        while not self.ended.wait(BEAT_S):
            now = self.asked, self.progress.count
            looks, known = (looks + 1 if now == known and self.asks else 0), now
            more = GRACE_S if self.parallel.local_rank else 0.0  # of a node one says it, and ends the others
            if looks * BEAT_S <= self.hang_s + more:
                continue
            self.stop(
                RankHangs(
                    f"no progress for {self.hang_s:g} s: the node of rank 0 ({_place()}) does not answer, and rank "
                    f"{self.parallel.rank} on {socket.gethostname()} is in {self._own()}; all ranks of this node are "
                    "stopped. Go on from the newest checkpoint, if there is one, without that node"
                )
            )
            return

    def _own(self) -> Progress:
        return replace(self.progress, **_position(self.main))

    def tell(self, status: int) -> None:
        """Let the other ranks know that this one ends with an error, for which they may be waiting in an exchange."""
        if self.store is not None:
            with suppress(Exception):  # the store went first
                self.store.set(_FAILED, str(status))

    def told(self) -> int | None:
        """Exit status of a rank that failed."""
        with suppress(Exception):  # the store went first
            if self.store is not None and self.store.check([_FAILED]):
                return int(self.store.get(_FAILED))
        return None

    def _exchange(self) -> dict[int, Progress] | None:
        """What every rank said last, or None where it is not yet time to ask."""
        self.beat += 1
        mine = replace(self._own(), beat=self.beat)
        if self.store is None:
            return {0: mine}
        self.store.set(_key(self.parallel.rank), json.dumps(asdict(mine)))
        if self.beat % (1 + (self.parallel.world_size - 1) // RANKS_A_BEAT):
            return None
        return dict(enumerate(map(_word, self._ask(self.store))))

    def _ask(self, store: Store) -> list[bytes | None]:
        """What every rank said last, None where it was stopped before its first word."""
        keys = [_key(rank) for rank in range(self.parallel.world_size)]
        if store.check(keys):  # one answer for all; of a key that is not there it would be waited for
            return [*store.multi_get(keys)]
        return [store.get(key) if store.check([key]) else None for key in keys]

    def _hanging(self, everyone: Mapping[int, Progress]) -> RankHangs | None:
        """What to say where nobody has made progress for too long; the first rank that still answers says it."""
        still = {r for r, p in everyone.items() if self._unchanged_s((r, "count"), p.count) > self.hang_s}
        silent = {r for r, p in everyone.items() if self._unchanged_s((r, "beat"), p.beat) > SILENT_S}
        if len(still) < len(everyone) or min(still - silent, default=-1) != self.parallel.rank:
            return None  # somebody moves, and whoever waits for them has a reason
        guilty = silent or {r for r in still if not everyone[r].waits} or still
        parts = [f"rank {r} {'does not answer' if r in silent else 'is'} in {everyone[r]}" for r in sorted(guilty)]
        return RankHangs(
            f"no progress for {self.hang_s:g} s: {listed(parts, at_most=4)}; all ranks are stopped. Go on from the "
            "newest checkpoint, if there is one; raise train.hang_s if this was no hang"
        )

    def _unchanged_s(self, what: tuple[int, str], value: int) -> float:
        now = time.monotonic()
        if what not in self.seen or self.seen[what][0] != value:
            self.seen[what] = (value, now)
        return now - self.seen[what][1]


def open_watch(parallel: Parallel, *, hang_s: float, clock: Goodput) -> Watch:
    """Begins a watch, which ends the process where somebody hangs and has ``clock`` lay its time to the hang."""
    store: Store | None = None
    if parallel.world_size > 1:
        from torch.distributed.distributed_c10d import _get_default_store

        store = _get_default_store().clone()  # type: ignore[attr-defined]  # the main thread may be waiting in its own

    def end(found: RankHangs) -> None:
        print(found.line(), file=sys.stderr, flush=True)
        clock.reassign(hang_s, "fault_detection")
        clock.close(ended=FAILED, problem=str(found))
        os._exit(found.exit_status)  # the main thread may be in a kernel or an exchange that never returns

    watch = Watch(parallel, hang_s=hang_s, store=store, stop=end)
    watch.start()
    return watch


_FAILED = "kosmos/failed"


def _place() -> str:
    """Where ranks meet, as their launcher says it."""
    return f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"


def _word(said: bytes | None) -> Progress:
    """A rank that said nothing counts as one that starts, and says no more."""
    return Progress(where="start") if said is None else Progress(**json.loads(said))


def _key(rank: int) -> str:
    return f"kosmos/progress/{rank}"


def _position(thread: int) -> dict[str, Any]:
    """The innermost line of the thread that is neither Python's own nor torch's, and whether it is in an exchange."""
    frame = sys._current_frames().get(thread)
    waits, where = False, "start"
    while frame is not None:
        path = frame.f_code.co_filename
        waits = waits or path.startswith(_EXCHANGES)
        if not path.startswith(_NOT_OURS):
            where = f"{Path(path).name}:{frame.f_lineno} ({frame.f_code.co_name})"
            break
        frame = frame.f_back
    return {"waits": waits, "where": where}
