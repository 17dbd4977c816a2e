"""Goodput: every second in one class, steps that were taken twice counted once."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kosmos.train.goodput import CLASSES, Goodput
from kosmos.train.goodput_report import Row, read_rows, summary


class Timeline:
    """A clock that the test moves. ``now`` and the clock of the day differ, as they do."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at + 5e6

    def clock(self, file: Path, step: int = 0, *, every_s: float = 5.0) -> Goodput:
        clock = Goodput(every_s=every_s, age_s=0.0, now=self.now, wall=self.wall)
        clock.open(file, step)
        return clock

    def step(self, clock: Goodput, number: int, seconds: float = 1.0, *, wait: float = 0.0, kept: bool = True) -> None:
        with clock.spending("productive"):
            with clock.spending("data_wait"):
                self.at += wait
            self.at += seconds
        clock.finish_step(number, kept=kept)


@pytest.fixture
def timeline() -> Timeline:
    return Timeline()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "goodput.jsonl"


def seconds_of(file: Path) -> dict[str, float]:
    return {what: s for what, s in summary(read_rows(file)).seconds.items() if s}


def test_of_nested_classes_the_inner_one_wins(timeline: Timeline, file: Path) -> None:
    clock = timeline.clock(file)
    timeline.at += 3
    with clock.spending("evaluation"):
        timeline.at += 2
    timeline.step(clock, 1, 4, wait=1)
    timeline.at += 0.5
    clock.close()
    expected = {"start_up": 3, "evaluation": 2, "productive": 4, "data_wait": 1, "unknown": 0.5}
    assert seconds_of(file) == pytest.approx(expected)


def test_an_exception_ends_what_was_going_on_and_the_step_is_lost(timeline: Timeline, file: Path) -> None:
    clock = timeline.clock(file)
    timeline.step(clock, 1, 4)

    def fail() -> None:
        with clock.spending("productive"):
            timeline.at += 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    clock.close()
    assert seconds_of(file) == pytest.approx({"productive": 4, "lost_work": 2})


def test_the_wait_for_data_may_be_told_when_the_step_is_done(timeline: Timeline, file: Path) -> None:
    clock = timeline.clock(file)
    with clock.spending("productive"):
        timeline.at += 4
    clock.finish_step(1, waited_s=1.5)
    clock.close()
    assert seconds_of(file) == pytest.approx({"productive": 2.5, "data_wait": 1.5})


def test_a_skipped_step_is_not_productive(timeline: Timeline, file: Path) -> None:
    clock = timeline.clock(file)
    timeline.step(clock, 1, 4)
    timeline.step(clock, 2, 3, kept=False)
    clock.close()
    assert seconds_of(file) == pytest.approx({"productive": 4, "skipped_steps": 3})


def test_steps_taken_again_count_once_and_the_time_between_launches_is_restart(timeline: Timeline, file: Path) -> None:
    first = timeline.clock(file)
    for number in range(1, 6):
        timeline.step(first, number, 2)
        if number == 3:
            first.flush()  # the checkpoint from which the next launch goes on
    first.close()
    timeline.at += 10
    second = timeline.clock(file, 3)
    timeline.at += 1
    for number in range(4, 8):
        timeline.step(second, number, 3)
    second.close()
    report = summary(read_rows(file))
    assert {what: s for what, s in report.seconds.items() if s} == pytest.approx(
        {"productive": 3 * 2 + 4 * 3, "lost_work": 2 * 2, "restart": 10, "start_up": 1}
    )
    assert (report.steps, report.lost_steps, report.launches) == (7, 2, 2)
    assert report.goodput == pytest.approx(18 / report.wall_s)
    assert report.wall_s == pytest.approx(timeline.at - 1000)


def test_a_fallback_beyond_the_last_launch_loses_steps_of_those_before_it_too() -> None:
    def row(launch: str, begin: float, first: int, last: int) -> Row:
        return Row(launch, begin, begin + last - first, first, last, {"productive": float(last - first)})

    rows = [row("a", 0, 0, 40), row("a", 40, 40, 100), row("b", 100, 80, 90), row("c", 110, 40, 60)]
    report = summary(rows)
    assert (report.steps, report.lost_steps) == (60, 70)
    assert report.seconds["productive"] == pytest.approx(60)
    assert report.seconds["lost_work"] == pytest.approx(70)


def test_a_launch_that_went_on_from_further_ahead_than_the_one_before_keeps_the_older_steps() -> None:
    rows = [
        Row("a", 0, 100, 0, 100, {"productive": 100.0}),
        Row("b", 100, 105, 80, 85, {"productive": 5.0}),  # its newest checkpoint could not be read
        Row("c", 105, 115, 100, 110, {"productive": 10.0}),  # and now it can
    ]
    report = summary(rows)
    assert (report.steps, report.lost_steps) == (110, 5)
    assert report.seconds["lost_work"] == pytest.approx(5)


def test_a_row_lost_after_its_checkpoint_loses_no_other_steps() -> None:
    rows = [Row("a", 0, 90, 0, 90, {"productive": 90.0}), Row("b", 120, 130, 100, 110, {"productive": 10.0})]
    report = summary(rows)
    assert (report.steps, report.lost_steps) == (100, 0)
    assert report.seconds["productive"] == pytest.approx(100)
    assert report.seconds["restart"] == pytest.approx(30)


def test_a_rollback_within_a_launch_is_lost_work(timeline: Timeline, file: Path) -> None:
    clock = timeline.clock(file)
    for number in range(1, 5):
        timeline.step(clock, number, 1)
        if number == 2:
            clock.flush()
    with clock.spending("productive"):
        timeline.at += 0.5  # the step that went wrong
    clock.roll_back(2)
    for number in range(3, 6):
        timeline.step(clock, number, 1)
    clock.close()
    report = summary(read_rows(file))
    assert {what: s for what, s in report.seconds.items() if s} == pytest.approx({"productive": 5, "lost_work": 2.5})
    assert (report.steps, report.lost_steps, report.launches) == (5, 2, 1)


def test_the_seconds_of_a_hang_become_fault_detection(timeline: Timeline, file: Path) -> None:
    clock = timeline.clock(file)
    timeline.step(clock, 1, 4)
    with clock.spending("productive"):
        timeline.at += 32
        clock.reassign(30, "fault_detection")  # the watchdog, which then ends the process
        clock.close()
    assert seconds_of(file) == pytest.approx({"productive": 4, "lost_work": 2, "fault_detection": 30})


def test_rows_are_written_while_it_runs_and_never_within_a_step(timeline: Timeline, file: Path) -> None:
    clock = timeline.clock(file, every_s=5)
    for number in range(1, 7):
        timeline.step(clock, number, 2, wait=1)
    rows = read_rows(file)
    assert [(row.first_step, row.last_step) for row in rows] == [(0, 0), (0, 2), (2, 4), (4, 6)]
    assert rows[1].seconds == pytest.approx({"productive": 4, "data_wait": 2})


def test_a_line_cut_short_costs_that_line_and_its_time_is_unknown(timeline: Timeline, file: Path) -> None:
    clock = timeline.clock(file, every_s=1)
    for number in range(1, 4):
        timeline.step(clock, number, 2)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:2], lines[2][:30], "\n", lines[3]]))
    report = summary(read_rows(file))
    assert report.seconds["unknown"] == pytest.approx(2)
    assert report.wall_s == pytest.approx(6)


def test_a_launch_after_a_cut_line_starts_on_a_line_of_its_own(timeline: Timeline, file: Path) -> None:
    clock = timeline.clock(file, every_s=1)
    timeline.step(clock, 1, 2)
    timeline.step(clock, 2, 2)
    file.write_text(file.read_text()[:-20])
    again = timeline.clock(file, 1)
    timeline.step(again, 2, 3)
    again.close()
    assert [(row.first_step, row.last_step) for row in read_rows(file)] == [(0, 0), (0, 1), (1, 1), (1, 2)]


def test_a_folder_that_cannot_be_written_stops_nothing_and_the_row_comes_later(timeline: Timeline, file: Path) -> None:
    missing = file.parent / "missing"
    clock = timeline.clock(missing / "goodput.jsonl", every_s=1)
    timeline.step(clock, 1, 2)
    missing.mkdir()
    timeline.step(clock, 2, 2)
    rows = read_rows(missing / "goodput.jsonl")
    assert [(row.first_step, row.last_step, row.seconds) for row in rows] == [(0, 2, {"productive": 4.0})]


def test_a_clock_without_a_file_writes_nothing(timeline: Timeline, tmp_path: Path) -> None:
    clock = Goodput(every_s=0, age_s=0.0, now=timeline.now, wall=timeline.wall)
    timeline.step(clock, 1)
    clock.close()
    assert list(tmp_path.iterdir()) == []


COMMAND = """
import sys, time
from pathlib import Path
import kosmos.cli
time.sleep(0.2)
from kosmos.train.goodput import Goodput
Goodput().open(Path(sys.argv[1]), 0)
print(time.monotonic() - kosmos.cli.BEGAN_S)
"""


def test_start_up_begins_with_the_command_and_not_with_what_its_shell_did_before(file: Path) -> None:
    shell = f"sleep 0.5 && {sys.executable} -c '{COMMAND}' {file}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    (row,) = read_rows(file)
    assert 0.2 < row.seconds["start_up"] <= float(done.stdout)


def test_no_rows_are_no_goodput() -> None:
    report = summary([])
    assert (report.goodput, report.wall_s, report.launches) == (0.0, 0.0, 0)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.floats(0, 20), st.floats(0, 9), st.booleans()),
        st.tuples(st.just("spend"), st.sampled_from([c for c in CLASSES if c != "productive"]), st.floats(0, 20)),
        st.tuples(st.just("idle"), st.floats(0, 9)),
        st.tuples(st.just("save")),
        st.tuples(st.just("kill"), st.floats(0, 9), st.floats(0, 60)),
        st.tuples(st.just("close"), st.floats(0, 60)),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(actions=ACTIONS, every_s=st.sampled_from([0.0, 5.0, 50.0]))
def test_the_classes_sum_to_wall_time_whatever_happens(
    actions: list[tuple[object, ...]], every_s: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Against a model that keeps the seconds of each step by number and forgets what a kill undoes."""
    timeline = Timeline()
    file = tmp_path_factory.mktemp("timeline") / "goodput.jsonl"
    clock = timeline.clock(file, every_s=every_s)
    kept: dict[int, float] = {}
    step = saved = 0
    for name, *values in actions:
        numbers = [float(v) for v in values if isinstance(v, float)]
        if name == "step":
            step += 1
            timeline.step(clock, step, numbers[0], wait=numbers[1], kept=bool(values[2]))
            kept[step] = numbers[0] if values[2] else 0.0
        elif name == "spend":
            with clock.spending(str(values[0])):
                timeline.at += numbers[0]
        elif name == "idle":
            timeline.at += numbers[0]
        elif name == "save":
            saved = step
            clock.flush()
        else:
            if name == "close":
                clock.close()
            timeline.at += sum(numbers)
            step = saved
            kept = {number: s for number, s in kept.items() if number <= saved}
            clock = timeline.clock(file, saved, every_s=every_s)
    clock.close()
    rows = read_rows(file)
    for row in rows:
        assert sum(row.seconds.values()) == pytest.approx(row.end - row.begin, abs=1e-4)
    report = summary(rows)
    assert report.wall_s == pytest.approx(timeline.at - 1000, abs=1e-3)
    assert sum(report.seconds.values()) == pytest.approx(report.wall_s)
    assert min(report.seconds.values()) >= 0
    assert report.steps == step
    # Rows end at every save, so none holds steps of which some are lost: the sum is exact to the rounding of rows.
    assert report.seconds["productive"] == pytest.approx(sum(kept.values()), abs=1e-3)
    json.dumps(report.seconds, allow_nan=False)


class Time:
    at = 1000.0

    def __call__(self):
        return self.at


def test_a_row_that_found_no_room_is_written_whole_once_there_is_some(timeline: Timeline, file: Path) -> None:
    clock = timeline.clock(file, every_s=1e9)
    timeline.step(clock, 1)
    limits, before = resource.getrlimit(resource.RLIMIT_FSIZE), file.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + 20, limits[1]))  # room for the beginning of a row
    try:
        clock.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.stat().st_size == before
    timeline.step(clock, 2)
    clock.close()
    assert seconds_of(file) == {"productive": 2.0}


def test_rows_tell_of_the_newest_checkpoint_and_of_those_that_failed_since(timeline: Timeline, file: Path) -> None:
    clock = timeline.clock(file, every_s=0)
    for step, problem in enumerate(("No space left", "quota", None, "quota"), 1):
        timeline.step(clock, step)
        clock.note_save(step, problem)
        clock.flush()
    clock.close()
    found = [(row.newest, row.failed, row.problem) for row in read_rows(file)]
    assert [told for told, before in zip(found, [(), *found], strict=False) if told != before] == [
        (None, 0, None), (None, 1, "No space left"), (None, 2, "quota"), (3, 0, None), (3, 1, "quota"),
    ]  # fmt: skip
    timeline.clock(file, 3).close()
    assert [(row.newest, row.failed) for row in read_rows(file)[-2:]] == [(3, 0), (3, 0)]


def test_no_more_is_waited_than_the_step_took(tmp_path):
    time = Time()
    clock = Goodput(age_s=0.0, now=time, wall=time)
    clock.open(tmp_path / "g", 0)
    with clock.spending("productive"):
        time.at += 4
    clock.finish_step(1, waited_s=9.0)
    clock.close()
    assert {k: s for k, s in summary(read_rows(tmp_path / "g")).seconds.items() if s} == {"data_wait": 4.0}


def test_no_more_is_reassigned_than_there_is(tmp_path):
    time = Time()
    clock = Goodput(age_s=0.0, now=time, wall=time)
    clock.open(tmp_path / "g", 0)
    with clock.spending("evaluation"):
        time.at += 4
        clock.reassign(100.0, "fault_detection")
    clock.close()
    assert {k: s for k, s in summary(read_rows(tmp_path / "g")).seconds.items() if s} == {"fault_detection": 4.0}


def test_clocks_that_disagree_take_no_time_away():
    rows = [Row("a", 0.0, 10.0, 0, 5, {"productive": 10.0}), Row("b", 8.0, 12.0, 5, 7, {"productive": 4.0})]
    assert summary(rows).seconds["restart"] == 0.0
    assert summary(rows).goodput == 1.0
