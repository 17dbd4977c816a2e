"""Reasons to stop a run in good order: a signal, its caller's wish, or an allocation that is about to end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kosmos.errors import ConfigError, Interrupted
from kosmos.interrupts import came, keep_in_mind
from kosmos.runtime.launch import is_launched

if TYPE_CHECKING:
    from kosmos.runtime.parallel import Parallel
    from kosmos.train.given_data import GivenData

PATIENCE_S = 10.0
"""A scheduler and the launcher under it may both send SIGTERM for one and the same stop."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
AT_ONCE = "stopped at once; steps since the newest checkpoint are lost"
JOB_END = "SLURM_JOB_END_TIME"
"""Where Slurm states when the allocation ends, in seconds since 1970."""

NOTICE = "KOSMOS_NOTICE_S"
"""Where a launch file states how many seconds before that end the run is to stop."""
USUAL_NOTICE_S = 300.0


def _notice_s() -> float:
    """Raises ConfigError where what is stated is no number of seconds."""
    stated = os.environ.get(NOTICE, "")
    if not stated:
        return USUAL_NOTICE_S
    if not stated.isdecimal() or not int(stated):
        raise ConfigError(
            f"{NOTICE}: expected seconds before the end of the allocation at which to stop, 1 or more, got {stated!r}"
        )
    return float(stated)


def _allocation_end() -> float | None:
    """An end that is over is that of another job, whose environment a shell has kept."""
    stated = os.environ.get(JOB_END, "")
    return float(stated) if stated.isdigit() and float(stated) > time.time() else None


def how_to_go_on(output: Path, parallel: Parallel, given: GivenData | None = None) -> str:
    """What goes on with the run in ``output`` in as many processes as it has now, whatever has started them.

    Args:
        given: documents of a caller in Python, which no command has.
    """
    from kosmos.train.going_on import resume_call, resume_command

    if given is not None:
        shared = f" (in {parallel.world_size} processes, started as these were)" if parallel.world_size > 1 else ""
        return resume_call(output, held_out=bool(given.held_out)) + shared
    if parallel.world_size > parallel.local_world_size:  # of several nodes their launchers alone know the addresses
        again = resume_command(output)
        return f"{again} (in {parallel.world_size} processes, started on their nodes as these were)"
    return resume_command(output, parallel.world_size)


class _AtOnce(KeyboardInterrupt):
    """Asked for twice, which has been said already."""


@contextmanager
def interrupted_in_words() -> Iterator[None]:
    """Around a run, for what comes before and after it can stop in good order: Ctrl-C ends it, as do other signals.

    Of several processes those end as ever: each may wait for the others where no handler of Python's is heard.

    Raises:
        Interrupted: one of them came.
    """

    StopRequest.was_installed = False
    put_back = keep_in_mind(() if is_launched() else SIGNALS)
    try:
        yield
    except (KeyboardInterrupt, Exception) as stop:
        if isinstance(stop, Exception) and (StopRequest.was_installed or not came()):
            raise
        name = came() or (stop.args[0] if stop.args else signal.SIGINT.name)
        when = (
            "as it ended: what was saved stays" if StopRequest.was_installed else "before it began: nothing was saved"
        )
        stopped = Interrupted(f"stopped ({name}) {when}")
        stopped.elsewhere = isinstance(stop, _AtOnce) or os.environ.get("RANK", "0") != "0"
        raise stopped from stop
    finally:
        put_back()


def heed_swallowed() -> None:
    """Raises KeyboardInterrupt where a signal asked to stop, and what was imported at that time has swallowed it."""
    if name := came():
        raise KeyboardInterrupt(name)


@dataclass
class StopRequest:
    """Asked for by a signal, by the caller or by the clock; all ranks stop after the same step."""

    margin_s: float = field(default_factory=_notice_s)
    """Seconds before the end of an allocation at which to stop; of a shorter one the last quarter."""
    ends_at: float | None = field(default_factory=_allocation_end)
    """When the allocation ends, in seconds since 1970."""
    asked: Callable[[], bool] = lambda: False
    """Whether the caller of the run wants it to stop."""
    go_on: str = ""
    """What goes on with the run; empty while the run would leave nothing to go on with."""
    signal_name: str | None = None
    """The first that came, or that the caller asked."""
    asked_at: dict[str, float] = field(default_factory=dict)
    """When each kind of signal came first."""
    was_installed: ClassVar[bool] = False
    """Whether a run has begun in this process."""

    def __post_init__(self) -> None:
        if self.ends_at is not None and (left_s := self.ends_at - time.time()) < self.margin_s:
            self.margin_s = left_s / 4

    @property
    def cause(self) -> str | None:
        """Why to stop; None while there is no reason to."""
        if self.signal_name is None and self.asked():
            self.signal_name = "its reporter wants to"
        if self.signal_name is not None:
            return self.signal_name
        if self.ends_at is not None and time.time() > self.ends_at - self.margin_s:
            return f"the allocation ends in {max(0.0, self.ends_at - time.time()):.0f} s"
        return None

    def wanted(self) -> bool:
        return self.cause is not None

    def install(self) -> Callable[[], None]:
        """Handle SIGINT, SIGTERM, SIGUSR1 and SIGHUP; a second one of the kind stops at once.

        SIGHUP, which comes as a terminal closes, is left alone where it was made to mean nothing (nohup).

        Returns:
            What puts the old handlers back.
        """
        StopRequest.was_installed = True
        self.signal_name = self.signal_name or came()
        old = {number: signal.getsignal(number) for number in SIGNALS}
        if old[signal.SIGHUP] is signal.SIG_IGN:
            del old[signal.SIGHUP]

        def handle(number: int, frame: Any) -> None:
            name, now = signal.Signals(number).name, time.monotonic()
            self.signal_name = self.signal_name or name
            if name not in self.asked_at:  # a terminal's and a launcher's may come for one and the same stop
                self.asked_at[name] = now
                if number == signal.SIGINT and sys.stderr.isatty():  # who presses Ctrl-C, and waits for a long step
                    self._say("\nstopping once the step under way is done and saved; Ctrl-C again stops at once")
            elif number == signal.SIGINT or now - self.asked_at[name] > PATIENCE_S:
                self._say(Interrupted(f"{AT_ONCE}; go on with: {self.go_on}" if self.go_on else AT_ONCE).line())
                raise _AtOnce

        try:
            for number in old:
                signal.signal(number, handle)
        except ValueError:  # not the main thread: whoever owns it owns its signals
            return lambda: None

        def put_back() -> None:
            for number, handler in old.items():
                signal.signal(number, handler)

        return put_back

    @staticmethod
    def _say(line: str) -> None:
        """From a handler of signals; of several processes one says so."""
        if os.environ.get("RANK", "0") == "0":
            with suppress(OSError):  # nobody listens
                os.write(sys.stderr.fileno(), f"{line}\n".encode())  # print may be at work already
