"""The clock of goodput: every second of a launch in exactly one class, row by row in ``goodput.jsonl``.

What several launches of a run come to is in ``kosmos.train.goodput_report``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kosmos.files import open_own, replacing

PRODUCTIVE = "productive"
START_UP = "start_up"
COMPILE = "compile"
RESTART = "restart"
LOST_WORK = "lost_work"
SKIPPED = "skipped_steps"
TRACKERS = "trackers"
UNKNOWN = "unknown"
CLASSES = (
    PRODUCTIVE, START_UP, COMPILE, "checkpoint_load", "blocking_save", "data_wait", "evaluation",
    TRACKERS, "fault_detection", RESTART, LOST_WORK, SKIPPED, UNKNOWN,
)  # fmt: skip
"""``start_up`` is from the start of the command to the first step, ``restart`` the time between two launches;
``unknown`` what nobody claimed."""


class Goodput:
    """The clock of one launch. Whatever is not claimed is ``start_up`` before the first step and ``unknown`` after.

    Rows go to a file once ``open`` has named it; a rank that is not the first leaves it closed and writes nothing.
    A row never ends within a step, so that a launch that is killed leaves whole steps; what it did since its last
    row is then part of the time between two launches.
    """

    def __init__(
        self,
        *,
        every_s: float = 5.0,
        age_s: float | None = None,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            every_s: a row is written after so many seconds, at the end of what is going on.
            age_s: seconds since the launch began; None is since the command began.
            now: the clock that runs.
            wall: the clock of the day, in seconds since 1970. Read once, so that setting it breaks no sum.
        """
        age_s = _command_age() if age_s is None else age_s
        self._now, self._every_s = now, every_s
        self._last = now()
        self.began = self._row_begin = self._last - age_s
        """When the launch began, by ``now``."""
        self._to_wall = wall() - self._last
        self.launch = f"{self._to_wall + self._row_begin:.3f}-{os.getpid()}"
        self._file: Path | None = None
        self._row_step = self._step = 0
        self._stack: list[str] = []
        self._stepped = False
        self._seconds = {START_UP: age_s}
        self._step_s = 0.0
        """Productive seconds of the step that is not finished."""
        self._saves: dict[str, Any] = {}
        """The newest checkpoint, and how many have failed since: what each row says anew, whichever found room."""
        self._lock = threading.RLock()

    def open(self, file: Path, step: int) -> None:
        """Write to ``file`` from here on; the launch goes on from ``step``; if that is not 0, from its checkpoint."""
        with self._lock:
            self._charge()
            self._file = file
            self._saves = {"newest": step} if step else {}
            self._row_step = self._step = step
            _take_up(file)
            self._write()

    @contextmanager
    def spending(self, what: str) -> Iterator[None]:
        """The seconds inside go to the class ``what``; of nested ones the inner wins."""
        assert what in CLASSES, f"{what} is no class of time"
        with self._lock:
            self._charge()
            self._stack.append(what)
        try:
            yield
        finally:
            with self._lock:
                self._charge()
                self._stack.pop()
                self._stepped |= what == PRODUCTIVE
                self._write_if_due()

    def finish_step(self, step: int, *, kept: bool = True, waited_s: float = 0.0) -> None:
        """Step ``step`` is done: only now do its seconds count.

        Args:
            kept: False if its update was skipped.
            waited_s: of its seconds, those that it waited for data, where no ``spending`` has taken them out.
        """
        with self._lock:
            self._charge()
            waited = min(waited_s, self._step_s)
            self._add("data_wait", waited)
            self._add(PRODUCTIVE if kept else SKIPPED, self._step_s - waited)
            self._step_s = 0.0
            self._step = step
            self._write_if_due()

    def roll_back(self, step: int) -> None:
        """The run goes on from ``step``, which it had passed: the steps since are lost work, an unfinished one too."""
        with self._lock:
            self._charge()
            self._lose_step()
            self._write()
            self._row_step = self._step = step

    def reassign(self, seconds: float, to: str) -> None:
        """Of what is going on, the last ``seconds`` were in truth spent on ``to``: those of a hang, once it is found.

        May be called by another thread. Takes no more than the present row has of it.
        """
        assert to in CLASSES, f"{to} is no class of time"
        with self._lock:
            self._charge()
            what = self._stack[-1] if self._stack else self._base
            have = self._step_s if what == PRODUCTIVE else self._seconds.get(what, 0.0)
            moved = min(max(0.0, seconds), have)
            if what == PRODUCTIVE:
                self._step_s -= moved
            else:
                self._add(what, -moved)
            self._add(to, moved)

    def note_save(self, step: int, problem: str | None = None) -> None:
        """The checkpoint of ``step`` is there or, with a ``problem``, could not be written: rows say so from here on.

        May be called by another thread.
        """
        with self._lock:
            if problem is None:
                self._saves = {"newest": step}
            else:
                self._saves |= {"failed": self._saves.get("failed", 0) + 1, "problem": problem}

    def flush(self) -> None:
        """Write a row now, unless a step is going on.

        To be called after each checkpoint: then no row holds steps that are kept beside steps that are lost.
        """
        with self._lock:
            self._charge()
            self._write()

    def close(self, **ended: str) -> None:
        """The launch ends; the step that it had begun, if any, is lost work.

        Args:
            ended: fields of its last row that say how.
        """
        with self._lock:
            self._charge()
            self._lose_step()
            self._write(within_step=True, **ended)
            self._file = None

    @property
    def _base(self) -> str:
        return UNKNOWN if self._stepped else START_UP

    def _charge(self) -> None:
        now = self._now()
        spent, self._last = now - self._last, now
        what = self._stack[-1] if self._stack else self._base
        if what == PRODUCTIVE:
            self._step_s += spent
        else:
            self._add(what, spent)

    def _lose_step(self) -> None:
        self._add(LOST_WORK, self._step_s)
        self._step_s = 0.0

    def _add(self, what: str, seconds: float) -> None:
        self._seconds[what] = self._seconds.get(what, 0.0) + seconds

    def _write_if_due(self) -> None:
        if self._last - self._row_begin >= self._every_s:
            self._write()

    def _write(self, *, within_step: bool = False, **ended: str) -> None:
        if self._file is None or ((self._step_s or PRODUCTIVE in self._stack) and not within_step):
            return
        row = {
            "launch": self.launch,
            "begin": round(self._to_wall + self._row_begin, 6),
            "end": round(self._to_wall + self._last, 6),
            "steps": [self._row_step, self._step],
            "seconds": {what: round(s, 6) for what, s in self._seconds.items() if s},
            **({"saves": self._saves} if self._saves else {}),
            **ended,
        }
        before: int | None = None
        try:
            with open_own(self._file) as ledger:
                before = ledger.tell()
                ledger.write(json.dumps(row) + "\n")
        except OSError:  # a full disk: the row goes on and is written once there is room
            with suppress(OSError):
                if before is not None:
                    os.truncate(self._file, before)  # what was written may be half of it
            return
        self._seconds = {}
        self._row_begin, self._row_step = self._last, self._step


def _take_up(file: Path) -> None:
    """See that what follows adds to whole lines, of a file that is the run's own.

    A crash may have cut the last line short, which nothing must be joined to. A link, or a file that has another name
    too, gives place to a copy, as the other ledgers do when a run goes on.
    """
    try:
        text = file.read_bytes() if file.is_file() else b""
        end = b"" if not text or text.endswith(b"\n") else b"\n"
        if file.is_symlink() or (file.is_file() and file.stat().st_nlink > 1):
            with replacing(file) as copy:
                copy.write(text + end)
        elif end:
            with open_own(file) as ledger:
                ledger.write("\n")
    except OSError:  # as for rows: accounts never stop a run
        pass


def _command_age() -> float:
    """Seconds since the ``kosmos`` command began; 0 where Python code calls us, which may have done other things.

    Not the age of the process: a shell that runs the command last becomes it, and counts what it ran before.
    """
    command = sys.modules.get("kosmos.cli")
    return time.monotonic() - command.BEGAN_S if command is not None else 0.0
