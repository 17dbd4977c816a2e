"""What plugins and the system do to data workers: exceptions, deaths, hangs, objects that cannot travel."""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import sys
import threading
import traceback
from contextlib import closing
from dataclasses import replace

import pytest

from kosmos.data import supervisor
from kosmos.data.feeder import StopWaiting, open_feeder
from kosmos.data.lane import DECODE, PLAN
from kosmos.errors import DataError, PluginError
from support.faulty import DiesBetweenSamples, DiesOnArrival, FailsBetweenSamples, Numbered, Plain
from support.feeds import feed_of


def take(feed, steps, workers=0, state=None, **settings):
    feeder = open_feeder(feed, range(feed.mixture.num_lanes), workers=workers, state=state, **settings)
    try:
        return [feeder.next_step() for _ in range(steps)], feeder.state()
    finally:
        feeder.close()


def contents(rows):
    """All that a row holds, lane by lane, with what was wrong."""
    return [
        (
            row.lane,
            row.drawn,
            row.arrays.token_ids.tolist(),
            row.arrays.labels.tolist(),
            row.arrays.media["ticks"].values.tolist(),
            [(d.origin, d.source, d.start, d.length) for d in row.arrays.documents],
            row.incidents,
            row.state,
        )
        for step in rows
        for row in step
    ]


def incidents(rows):
    return [incident for step in rows for row in step for incident in row.incidents]


@pytest.mark.parametrize("workers", [0, 1])
def test_any_exception_of_a_plugin_costs_one_sample_and_is_named(workers):
    fates = {("plan", 3): "ValueError", ("decode", 5): "KeyError"}
    rows, _ = take(feed_of(Numbered(40, {("read", 7): "KeyError"}), fates=fates), 12, workers)
    found = {(i.origin, i.code, re.sub(r":\d+\)$", ":N)", i.cause)) for i in incidents(rows)}
    assert found == {
        ("numbered 3", "sample", "Faulty.plan raised ValueError: row 3 (faulty.py:N)"),
        ("numbered 5", "sample", "Faulty.decode raised KeyError: 'row 5\\nis odd' (faulty.py:N)"),
        ("numbered: row 7", "sample", "Numbered.document raised KeyError: 'row 7\\nis odd' (faulty.py:N)"),
    }
    assert len({d.origin for step in rows for row in step for d in row.arrays.documents}) == 37


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("what", ["plan", "decode"])
def test_want_of_memory_ends_the_run_at_a_named_sample(workers, what):
    with pytest.raises(MemoryError) as caught:
        take(feed_of(fates={(what, 5): "MemoryError"}), 40, workers)
    assert "at numbered: row 5" in " ".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


@pytest.mark.parametrize("lanes", [1, 3])
def test_rows_are_the_same_with_any_number_of_workers_whatever_kills_them(lanes):
    fates = {
        ("plan", 2): "SIGSEGV",
        ("decode", 3): "SIGABRT",
        ("decode", 4): "ValueError",
        ("plan", 5): "KeyError",
        ("decode", 6): "SIGKILL",
    }
    sources = (Numbered(12), Plain(7, name="plain"))
    feed = feed_of(*sources, fates=fates, lanes=lanes, weights=(2.0, 1.0))
    first, state = take(feed, 6, workers=1)
    assert {tuple(entry[:3]) for entry in state["deadly"]} == {(0, 2, PLAN), (0, 3, DECODE), (0, 6, DECODE)}
    known = replace(feed, deadly={tuple(entry[:3]): entry[3] for entry in state["deadly"]})
    told, end = take(known, 6)
    assert end == state
    assert contents(told) == contents(first)
    for workers in range(2, lanes + 4):
        rows, end = take(feed, 6, workers)
        assert contents(rows) == contents(first)
        assert end == state


@pytest.mark.parametrize("lanes", [1, 2, 3, 4])
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_a_stop_at_any_step_goes_on_exactly(lanes, workers):
    choice = random.Random(lanes * 10 + workers)
    fates = {("plan", 2): "ValueError", ("decode", 3): "ValueError"}
    sources = (Numbered(30), Plain(9, name="plain"))
    feed = feed_of(*sources, fates=fates, lanes=lanes, weights=(1.0, 1.0))
    whole, end = take(feed, 8)
    before, state = take(feed, stop := choice.randrange(1, 8), workers)
    rest, same_end = take(feed, 8 - stop, choice.randrange(4), state)
    assert contents(before + rest) == contents(whole)
    assert same_end == end


@pytest.mark.parametrize("workers", [0, 1, 3, 4])
def test_rows_of_which_every_document_is_broken_are_passed_over_and_told_of(workers):
    fates = {("decode", row): "ValueError" for row in range(40) if row % 20 > 3}
    feed = feed_of(fates=fates, lanes=1, tokens=32)  # one or two documents a row
    rows, state = take(feed, 6, workers)
    alone, end = take(feed, 6)
    assert contents(rows) == contents(alone)
    assert state == end
    assert max(len(row.incidents) for step in rows for row in step) > 2
    assert all(row.arrays.documents for step in rows for row in step)


@pytest.mark.parametrize("workers", [0, 3])
def test_row_after_row_of_broken_documents_ends_the_run(workers):
    fates = {("decode", row): "ValueError" for row in range(40)}
    with pytest.raises(
        DataError, match=r"50 rows in turn hold no usable sample; the last: numbered \d+: Faulty.decode"
    ):
        take(feed_of(fates=fates, lanes=1), 1, workers)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("at", ["read", "plan"])
def test_a_file_that_only_one_of_a_lanes_workers_could_not_read_parts_them_not(tmp_path, workers, at):
    fates = {(at, row): f"ValueError unless {tmp_path / str(row)}" for row in (3, 11, 20)}
    feed = feed_of(Numbered(40, fates if at == "read" else {}), fates=fates if at == "plan" else {}, lanes=1)
    rows, state = take(feed, 12, workers)
    origins = [d.origin for step in rows for row in step for d in row.arrays.documents]
    draws = sum(state["lanes"]["0"]["draws"])
    waiting = len(state["lanes"]["0"]["pending"])
    lost = draws - waiting - len(origins)
    assert 0 <= lost <= 3  # once each, by whoever was first
    counts = [origins.count(f"numbered {row}") for row in range(40)]
    assert max(counts) - min(counts) <= 2  # nothing is given again and again, or never


def test_workers_share_a_lane_whose_rows_are_to_be_decoded():
    feed = feed_of(lanes=2)
    text = replace(feed, streams=())  # filling a row is all there is to do
    for read, asked, expected in ((feed, 1, 1), (feed, 2, 2), (feed, 5, 5), (text, 5, 2)):
        feeder = open_feeder(read, range(2), workers=asked)
        started = len(feeder.workers)
        feeder.close()
        assert started == expected


def test_states_of_old_checkpoints_still_load():
    feed = feed_of(lanes=1)
    _, state = take(feed, 2)
    lane = {key: value for key, value in state["lanes"]["0"].items() if key != "fruitless"}
    rows, after = take(feed, 6, state={"lanes": {"0": lane}, "deadly": [[0, 8]]})
    assert {i.origin for i in incidents(rows)} == {"numbered: row 8"}
    assert after["deadly"] == [[0, 8, PLAN, "its decoder died; the file, or what reads it, is broken"]]


def killed_elsewhere(worker):
    """Whether the worker, which may be dead, was killed: not at the sample of its last death, which would be blamed."""
    if worker.process.poll() is not None:  # rows that it had made are still being taken
        return False
    worker.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, worker.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    again = worker.suspect is not None and worker.marker.touch == worker.suspect
    worker.process.send_signal(signal.SIGCONT if again else signal.SIGKILL)
    return not again


@pytest.mark.parametrize("workers", [1, 3])
def test_a_worker_killed_from_outside_makes_the_same_rows_and_blames_nobody(workers):
    feed = feed_of(lanes=2)
    alone, end = take(feed, 40)
    feeder = open_feeder(feed, range(2), workers=workers)
    rows, kills, choice = [], 0, random.Random(workers)
    try:
        for _ in range(40):
            rows.append(feeder.next_step())
            kills += killed_elsewhere(choice.choice(feeder.workers))
        assert feeder.state() == end
    finally:
        feeder.close()
    assert kills > 3
    assert contents(rows) == contents(alone)


def test_a_kill_at_a_sample_that_does_not_come_again_blames_nobody(tmp_path):
    fates = {
        ("decode", 3): f"SIGKILL unless {tmp_path / 'decoded'}",
        ("plan", 9): f"SIGKILL unless {tmp_path / 'read'}",
    }
    rows, state = take(feed_of(fates=fates), 12, workers=1)
    assert (tmp_path / "decoded").exists() and (tmp_path / "read").exists()
    assert incidents(rows) == []
    assert state["deadly"] == []
    assert contents(rows) == contents(take(feed_of(), 12)[0])


def test_a_kill_that_comes_again_at_the_same_sample_is_its_own():
    rows, state = take(feed_of(fates={("decode", 3): "SIGKILL"}), 12, workers=2)
    assert {i.origin for i in incidents(rows)} == {"numbered 3"}
    assert "its decoder died twice (SIGKILL)" in incidents(rows)[0].cause
    assert [entry[:3] for entry in state["deadly"]] == [[0, 3, DECODE]]


def test_deaths_between_samples_end_the_run_with_what_would_help(monkeypatch):
    monkeypatch.setattr(supervisor, "MAX_DEATHS", 2)
    feed = feed_of(Plain(20), processor=DiesBetweenSamples())
    with pytest.raises(DataError, match=r"died 2 times in turn, the last time by SIGKILL between samples") as caught:
        take(feed, 1, workers=1)
    assert "lower data.workers or data.look_ahead" in str(caught.value)


def test_what_a_worker_did_not_expect_is_one_line_with_its_place_in_the_plugin():
    feed = feed_of(Plain(20), processor=FailsBetweenSamples())
    said = r"^a data worker failed: KeyError: 'the table\\nof cells' \(support\.faulty, faulty\.py:\d+\)$"
    with pytest.raises(DataError, match=said) as caught:
        take(feed, 1, workers=1)
    assert "Traceback (most recent call last)" in str(caught.value.__cause__)  # which --debug shows


def test_a_worker_that_dies_as_it_starts_is_one_line():
    with pytest.raises(
        DataError, match=r"died 3 times in turn, the last time by exit status 3 as it started; .*workers=0"
    ):
        take(feed_of(DiesOnArrival(20)), 1, workers=1)


def test_a_worker_that_dies_before_it_has_read_its_orders_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    orders = "x" * (1 << 20)  # more than a pipe holds
    with pytest.raises(DataError, match="died 3 times in turn, the last time by exit status 1 as it started"):
        take(feed_of(Numbered(20, {("read", -1): orders})), 1, workers=1)


def test_a_program_that_cannot_be_started_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(DataError, match=r"a data worker cannot be started .*lower data.workers"):
        take(feed_of(), 1, workers=1)


def test_want_of_descriptors_is_one_line_and_leaves_none_open(monkeypatch):
    feed, open_before = feed_of(Numbered(20)), len(os.listdir("/proc/self/fd"))
    pipe = os.pipe
    for allowed in range(2):
        left = iter(range(allowed))

        def scarce(left=left):
            if next(left, None) is None:
                raise OSError(errno.EMFILE, "Too many open files")
            return pipe()

        monkeypatch.setattr(os, "pipe", scarce)
        with pytest.raises(DataError, match=r"a data worker cannot be started .*Too many open.*lower data.workers"):
            take(feed, 1, workers=1)
        assert len(os.listdir("/proc/self/fd")) <= open_before  # what other tests left may be freed meanwhile


def test_a_worker_runs_no_file_of_the_working_folder(monkeypatch, tmp_path):
    """Data may lie there, and a file of it have the name of a module of Python."""
    for module in ("traceback", "random", "signal", "numpy"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({module!r})")
    monkeypatch.chdir(tmp_path)
    rows, _ = take(feed_of(Numbered(20)), 2, workers=1)
    assert len(rows) == 2
    assert not (tmp_path / "ran").exists()


def test_the_orders_of_a_worker_are_not_kept():
    """With large sources they are hundreds of megabytes."""
    feed = feed_of(Numbered(20, {("read", -1): "x" * (32 << 20)}))
    feeder = open_feeder(feed, range(2), workers=2)
    try:
        feeder.next_step()
        frames = [frame for last in sys._current_frames().values() for frame, _ in traceback.walk_stack(last)]
        held = [value for frame in frames for value in frame.f_locals.values() if isinstance(value, bytes)]
        assert max(map(len, held), default=0) < 1 << 20
    finally:
        feeder.close()


@pytest.mark.parametrize("part", ["source", "processor"])
def test_what_cannot_be_pickled_is_named(part):
    held = {("plan", -1): threading.Lock()}
    feed = feed_of(Numbered(20), Numbered(20, held, name="locked")) if part == "source" else feed_of(fates=held)
    named = {
        "source": r"source 'locked' \(support.faulty.Numbered\)",
        "processor": r"the processor of modality ticks \(support.faulty.Faulty\)",
    }
    with pytest.raises(PluginError, match=named[part] + " cannot be pickled.*lock.*; data.workers=0 avoids it"):
        take(feed, 1, workers=1)
    assert take(feed, 1)[0][0]


def test_a_class_that_a_worker_cannot_import_is_one_line(monkeypatch):
    class Homeless(Numbered):
        pass

    Homeless.__qualname__ = "Homeless"  # as in a script: there is such a class in this __main__, not in the worker's
    Homeless.__module__ = "__main__"
    monkeypatch.setattr(sys.modules["__main__"], "Homeless", Homeless, raising=False)
    with pytest.raises(PluginError, match=r"cannot rebuild .*Homeless.* importable from a module.*data.workers=0"):
        take(feed_of(Homeless(20)), 1, workers=1)


@pytest.mark.parametrize("what", ["plan", "decode"])
def test_a_sample_at_which_the_decoder_hangs_costs_itself_alone(what):
    feed = feed_of(fates={(what, 5): "hang"})
    rows, state = take(feed, 12, workers=2, hang_s=2.0)
    assert {i.cause for i in incidents(rows)} == {"its decoder hung for 2 s"}
    deadly = {tuple(entry[:3]): entry[3] for entry in state["deadly"]}
    assert list(deadly) == [(0, 5, PLAN if what == "plan" else DECODE)]
    assert contents(rows) == contents(take(replace(feed, deadly=deadly), 12)[0])


def test_whoever_waits_for_rows_is_told_of_each_worker_that_died_meanwhile():
    told, feed = [], feed_of(fates={("decode", 5): "SIGSEGV", ("decode", 6): "SIGSEGV"})
    with closing(open_feeder(feed, range(1), workers=1, moved=lambda: told.append("moved"))) as feeder:
        while len(feeder.state()["deadly"]) < 2:
            feeder.next_step()
    assert told == ["moved", "moved"]


def test_a_signal_ends_the_wait_for_a_row_and_loses_none(tmp_path):
    gate = tmp_path / "gate"
    feed = feed_of(lanes=2)
    alone, end = take(feed, 4)
    last = alone[2][1].arrays.documents[-1].origin  # of the second lane
    waits = feed_of(fates={("decode", int(last.split()[1])): f"wait for {gate}"}, lanes=2)
    feeder = open_feeder(waits, range(2), workers=2)
    try:
        rows = [feeder.next_step(), feeder.next_step()]
        state = feeder.state()
        asked = []
        old = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            with pytest.raises(StopWaiting):
                feeder.next_step(lambda: bool(asked))
        finally:
            signal.signal(signal.SIGINT, old)
        assert feeder.state() == state
        gate.touch()
        rows += [feeder.next_step(), feeder.next_step()]
        assert feeder.state() == end
    finally:
        feeder.close()
    assert contents(rows) == contents(alone)


def test_a_step_without_workers_can_be_stopped_between_its_rows():
    feed = feed_of(lanes=3)
    alone, end = take(feed, 2)
    feeder = open_feeder(feed, range(3), workers=0)
    start, asked = feeder.state(), iter([False, True])
    with pytest.raises(StopWaiting):
        feeder.next_step(lambda: next(asked))
    assert feeder.state() == start
    assert contents([feeder.next_step(), feeder.next_step()]) == contents(alone)
    assert feeder.state() == end
