"""Trackers that stand still, keep rows in memory, or fail as they are closed."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from kosmos import TrackerSpec, hookimpl
from kosmos.train.run import train_model
from kosmos.train.tracker_limit import bounded
from kosmos.train.trackers import Trackers
from support.runs import Listener, small_run, ticks_registry


class Standing:
    """It tries again and again at ``at``, and never gets through."""

    asked: list[str] = []  # noqa: RUF012 (shared on purpose: the run makes the instance)

    def __init__(self, output, run, *, at: str) -> None:
        self.at = at
        self.ask("init")

    def ask(self, what: str) -> None:
        self.asked.append(what)
        while what == self.at:
            with contextlib.suppress(Exception):
                time.sleep(60)

    def log(self, row) -> None:
        self.ask("log")

    def flush(self) -> None:
        self.ask("flush")

    def close(self) -> None:
        self.ask("close")


class Buffered:
    """Keeps its rows until it is flushed, as a file does; a crash loses them. ``close`` fails."""

    written: list[list[int]] = []  # noqa: RUF012

    def __init__(self, output, run) -> None:
        self.kept: list[int] = []

    def log(self, row) -> None:
        self.kept += [row["step"]] if "loss" in row else []

    def flush(self) -> None:
        self.written.append([*self.kept])

    def close(self) -> None:
        self.written.append([])
        raise OSError("no network")


class Plugin:
    KOSMOS_API = 1

    @hookimpl
    def kosmos_trackers():
        yield TrackerSpec(name="standing", target=f"{__name__}:Standing", summary="Stands still.")
        yield TrackerSpec(name="buffered", target=f"{__name__}:Buffered", summary="Keeps rows.")


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(Standing, "asked", [])
    monkeypatch.setattr(Buffered, "written", [])
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(Standing=Standing, Buffered=Buffered))
    return ticks_registry(plugin=Plugin)


@pytest.mark.parametrize(
    ("at", "asked"), [("init", (2, 2)), ("log", (3, 2)), ("flush", (3, 3)), ("close", (4, 4))], ids=str
)
def test_a_tracker_that_stands_still_is_left_out_and_the_others_go_on(tmp_path, registry, at, asked):
    said: list[str] = []
    both = [{"name": "standing", "at": at}, {"name": "standing", "at": "never"}]
    trackers = Trackers(small_run(trackers=both, train={"hang_s": 0.2}), registry, tmp_path, said.append)
    for step in (1, 2):
        trackers.log({"step": step, "loss": 1.0})
        trackers.flush()
    trackers.close()
    (line,) = said
    start = "warning: tracker standing (trackers.0) is off from here on: it stood still for 0.1 s (half of train.hang_s"
    assert line.startswith(start)
    assert Standing.asked[-1] == "close"
    assert (Standing.asked.count("log"), Standing.asked.count("flush")) == asked


def test_an_alarm_of_others_comes_in_time_and_a_tracker_has_no_limit_then():
    came: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: came.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        bounded(lambda: time.sleep(0.03), 1e-6)
        assert came == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_limit_beyond_all_timers_is_none_and_leaves_nothing_behind():
    before, done = signal.getsignal(signal.SIGALRM), []
    bounded(lambda: done.append(1), 1e12)
    assert done == [1]
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_tracker_in_another_thread_is_not_stopped():
    asked: list[str] = []
    thread = threading.Thread(target=bounded, args=(lambda: asked.append("log"), 1e-6))
    thread.start()
    thread.join()
    assert asked == ["log"]


def test_a_tracker_is_flushed_with_each_checkpoint_and_what_fails_in_close_is_a_warning_of_the_result(
    tmp_path, registry
):
    listener = Listener()
    config = small_run(tmp_path / "run", trackers=["buffered"], checkpoint={"every_steps": 4})
    result = train_model(config, registry=registry, reporter=listener)
    assert Buffered.written == [[1, 2, 3, 4], [1, 2, 3, 4, 5, 6], []]  # closed once
    (warning,) = result.warnings
    assert warning.startswith("tracker buffered is off from here on: OSError: no network (test_tracker_ends.py:")
