"""Trials as processes of their own, in a temporary folder that goes with them. No torch here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from kosmos.errors import unwritable
from kosmos.interrupts import keep_in_mind
from kosmos.runtime.launch import run_kosmos
from kosmos.runtime.processes import any_runs, children
from kosmos.selection import plugins_option
from kosmos.tune.outcome import INTERNAL, Facts, Job, Outcome

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""That end a search; a terminal that closes sends the last."""
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""What a trial ends with that was killed, or one of whose processes was."""
GONE_S = 3.0
"""Seconds in which killed processes are gone."""


class Trials:
    """Runs trials one after another. Used as a context; a signal of ``SIGNALS`` in it is a KeyboardInterrupt."""

    def __init__(self, processes: int | None) -> None:
        """
        Args:
            processes: that share the run in each trial; None is one, without a launcher.
        """
        self.processes, self.number = processes, 0

    def __enter__(self) -> Trials:
        self._put_back: Callable[[], None] = keep_in_mind(SIGNALS)
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="kosmos-tune-"))
        except OSError as error:
            self._put_back()
            raise unwritable(tempfile.gettempdir(), error, "set TMPDIR") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        shutil.rmtree(self.folder, ignore_errors=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._put_back()

    def run(self, settings: Mapping[str, Any], *, steps: int, seconds: float = 0.0, look: bool = False) -> Outcome:
        """Take steps with these settings.

        Args:
            settings: of a run, all that a run file can say.
            steps, seconds, look: see ``Job``.

        Raises:
            KeyboardInterrupt: a signal came. The processes are gone.
        """
        self.number += 1
        folder = self.folder / f"trial-{self.number}"
        folder.mkdir()
        Job(dict(settings), steps, seconds, self.processes, look).write(folder)
        begin = time.monotonic()
        status = self._wait(folder)
        found = _told(folder, status, self.processes or 1)
        shutil.rmtree(folder, ignore_errors=True)
        return replace(found, wall_s=time.monotonic() - begin)

    def _wait(self, folder: Path) -> int:
        process: subprocess.Popen[bytes] | None = None
        try:
            with (folder / "said").open("wb") as said, _signals_later():
                # In a session of its own, so that this process alone gets a terminal's Ctrl-C; what it compiles lies in
                # our folder, and so goes with it.
                process = subprocess.Popen(
                    [sys.executable, *run_kosmos("tune", "--trial", str(folder), *plugins_option())],
                    stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
                    env={**os.environ, "TMPDIR": str(self.folder)},
                )  # fmt: skip
            return process.wait()
        except BaseException:
            if process is not None:
                mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
                _end(process)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise


@contextmanager
def _signals_later() -> Iterator[None]:
    """Hand those of ``SIGNALS`` that come within it to their handlers at its end: a child is then known that they end.

    They are not blocked meanwhile, for a child would be born with them blocked.
    """
    came: list[int] = []
    handlers = {number: found for number in SIGNALS if callable(found := signal.getsignal(number))}
    try:
        for each in handlers:
            signal.signal(each, lambda number, frame: came.append(number))
        yield
    finally:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in came:
            signal.raise_signal(number)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _told(folder: Path, status: int, ranks: int) -> Outcome:
    """What the ranks have written that says most, or what can be known where none could."""
    facts = Facts.read(folder)
    told = [found for rank in range(ranks) if (found := Outcome.read(folder, rank)) is not None]
    told.sort(key=_says_least)  # stable: of errors alike that of the first rank
    if told and (told[0].error or status == 0):
        return replace(told[0], facts=facts)
    lines = (folder / "said").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    said = next((line for line in reversed(lines) if line.startswith("error[")), "")
    if status in KILLED:
        said = said or "error[training]: was killed (SIGKILL): memory may have run out, or somebody has ended it"
    elif status < 0:
        name = signal.Signals(-status).name
        said = f"error[training]: died ({name}); most likely a library that a plugin loads is broken"
    said = said or (lines[-1] if lines else f"ended with status {status} without a word")
    return Outcome(error=said, status=status if status > 0 else 4, out_of_memory=status in KILLED, facts=facts)


def _says_least(outcome: Outcome) -> int:
    """A rank that lacks memory, or says what is wrong, comes before one that failed of it, as an exchange does."""
    if not outcome.error:
        return 3
    return 0 if outcome.out_of_memory else 2 if outcome.error.startswith(INTERNAL) else 1


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a trial with all that it has started, and wait until they are gone."""
    found = [process.pid]
    for parent in found:
        found += children(parent)
    for number in found:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + GONE_S
    while time.monotonic() < end and any_runs(found):
        time.sleep(0.02)
