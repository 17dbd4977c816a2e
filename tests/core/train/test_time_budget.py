"""``train.max_time``: the most time of one start."""

from __future__ import annotations

import pytest

from kosmos import ConfigError, Interrupted, Reporter, make_run
from kosmos.cli import main
from kosmos.durations import seconds_of
from kosmos.train.run import resume_run, train_model
from support.command import SMALL
from support.runs import assert_same_tensors, rows_of, small_run, ticks_registry


class Said(Reporter):
    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90m", 5_400),
        ("11h30m", 41_400),
        ("3d", 259_200),
        ("1.5h", 5_400),
        ("1d 2h 3m 4s", 93_784),
        ("5 h 3 m", 18_180),
        ("90min", 5_400),
        ("2 Days 11 hours 1 minute 30 sec", 212_490),
        ("01:12:00:30", 129_630),
        ("400:23:59:59", 34_646_399),
    ],
)
def test_a_time_is_read_as_it_is_written_for_schedulers(text, seconds):
    assert seconds_of(text) == seconds
    assert make_run({"train": {"max_time": text}}).train.max_time == text


@pytest.mark.parametrize(
    "said",
    [
        "90",
        "",
        "0m",
        "m",
        "1:30",
        "30m11h",
        "-5m",
        90,
        True,
        "1 week",
        "3 months",
        "1:99:99:99",
        "1:24:00:00",
        "0:0:60:0",
        "9" * 400 + "d",
    ],
)
def test_a_time_without_a_unit_is_refused_in_one_line(said):
    with pytest.raises(ConfigError, match=r"train.max_time: expected a time such as 90m, 11h30m, 3d or 01:12:00:00"):
        make_run({"train": {"max_time": said}})


def test_a_run_that_is_ended_by_its_time_again_and_again_comes_to_what_one_without_comes_to(tmp_path):
    """Each start takes one step, since its time is over by then."""
    registry, run, said = ticks_registry(), tmp_path / "run", Said()
    begun = train_model(small_run(run, train={"max_time": "0.001s"}), registry=registry, reporter=said)
    assert (begun.step, begun.after is None) == (1, False)
    told = "stopped at step 1 of 6, all saved: train.max_time 0.001s is over; go on with: kosmos train --resume "
    assert f"{told}{run}" in said.lines
    assert [resume_run(run, registry=registry).step for _ in range(5)] == [2, 3, 4, 5, 6]
    whole = train_model(small_run(tmp_path / "whole"), registry=registry)
    once, other = (
        [(row["loss"], row["grad_norm"], row["tokens_by_source"]) for row in rows_of(folder / "metrics.jsonl")]
        for folder in (run, tmp_path / "whole")
    )
    assert once == other
    assert_same_tensors(run, whole.output)


def test_time_that_lasts_to_the_end_changes_nothing(tmp_path):
    said = Said()
    config = small_run(tmp_path / "run", train={"max_time": "1d"})
    assert train_model(config, registry=ticks_registry(), reporter=said).step == 6
    assert not [line for line in said.lines if "max_time" in line]


def test_who_asks_to_stop_goes_before_the_time(tmp_path):
    class Stopping(Said):
        def step(self, row, steps):
            self.taken = True

        def wants_stop(self):
            return hasattr(self, "taken")

    with pytest.raises(Interrupted, match=r"^stopped at step 1 of 6 \(its reporter wants to\)"):
        train_model(
            small_run(tmp_path / "run", train={"max_time": "0.001s"}), registry=ticks_registry(), reporter=Stopping()
        )


def test_the_command_ends_with_status_0_and_goes_on_as_a_launcher_starts_it_again(tmp_path, capsys):
    run = tmp_path / "run"
    command = ["train", "--output", str(run), "--auto-resume", *SMALL, "--steps", "2", "data.workers=0"]
    command += ["evaluate.max_documents=4", "train.max_time=0.001s"]
    for step, more in ((1, []), (2, []), (2, [])):
        assert main([*command, *more]) == 0
        assert rows_of(run / "metrics.jsonl")[-1]["step"] == step
        assert ("train.max_time 0.001s is over" in capsys.readouterr().err) == (step == 1)
