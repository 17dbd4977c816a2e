"""What the reporter for people writes where there is no terminal, and reporters of one's own."""

from __future__ import annotations

import builtins
from concurrent.futures import ThreadPoolExecutor

import pytest

from kosmos import ConfigError, ConsoleReporter, Interrupted, Reporter, resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry


class ZMQInteractiveShell:
    """By the name of this class rich knows a notebook."""


def test_in_a_notebook_lines_go_to_standard_error_as_elsewhere(tmp_path, monkeypatch, capsys):
    """As one output under the cell: rich would make an output of HTML of each line."""
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    train_model(small_run(tmp_path / "run"), registry=ticks_registry(), reporter=ConsoleReporter())
    written = capsys.readouterr()
    assert "step 6/6  loss " in written.err
    assert written.out.startswith("held out")
    assert "\x1b" not in written.err + written.out


def test_a_run_in_another_thread_stops_in_good_order_when_its_reporter_wants_it_to(tmp_path):
    """Signals come to the main thread alone. The run that goes on has the losses of one that was never stopped."""

    class Stopping(Reporter):
        taken = 0

        def step(self, row, steps):
            self.taken = row["step"]

        def wants_stop(self):
            return self.taken == 3

    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(train_model, small_run(tmp_path / "run"), registry=ticks_registry(), reporter=Stopping())
        stopped = run.exception()
    assert isinstance(stopped, Interrupted)
    assert str(stopped).startswith("stopped at step 3 of 6 (its reporter wants to), all saved; go on with: ")
    resume_run(tmp_path / "run", registry=ticks_registry())
    train_model(small_run(tmp_path / "whole"), registry=ticks_registry())
    stopped_once, whole = (
        [row["loss"] for row in rows_of(tmp_path / name / "metrics.jsonl")] for name in ("run", "whole")
    )
    assert stopped_once == whole


def test_a_reporter_that_cannot_be_called_is_refused_before_anything_is_made(tmp_path):
    class Short(Reporter):
        def step(self, row):
            """Of too few arguments."""

    class Flag(Reporter):
        wants_stop = False

    class Loose(Reporter):
        def step(self, *given):
            """Of any arguments."""

        def finish(self, before, after, output, bad, more=None):
            """Of one more, which may be left out."""

    says = r"^reporter: Short cannot be called as step\(row, steps\): too many positional arguments"
    with pytest.raises(ConfigError, match=says):
        train_model(small_run(tmp_path / "run"), registry=ticks_registry(), reporter=Short())
    with pytest.raises(ConfigError, match=r"^reporter: Flag cannot be called as wants_stop\(\): False"):
        train_model(small_run(tmp_path / "run"), registry=ticks_registry(), reporter=Flag())
    assert not (tmp_path / "run").exists()
    assert train_model(small_run(tmp_path / "run"), registry=ticks_registry(), reporter=Loose()).step == 6


def test_a_run_may_be_stopped_before_its_first_step(tmp_path):
    class Never(Reporter):
        def wants_stop(self):
            return True

    with pytest.raises(Interrupted, match="stopped at step 0 of 6"):
        train_model(small_run(tmp_path / "run"), registry=ticks_registry(), reporter=Never())
    assert resume_run(tmp_path / "run", registry=ticks_registry()).step == 6


class Halting(ConsoleReporter):
    """Stops after the third step of the launch, and keeps what a bar would say of each."""

    def __init__(self):
        super().__init__()
        self.beside_the_bar = []

    def step(self, row, steps):
        super().step(row, steps)
        self.has_bar, written = True, self.said_at
        super().step(row, steps)
        self.has_bar, self.said_at = False, written

    def _show_bar(self, step, steps, line):
        self.beside_the_bar.append(line)

    def wants_stop(self):
        return len(self.beside_the_bar) == 3


def test_a_run_of_epochs_tells_where_it_is_in_them_also_when_it_goes_on(tmp_path, capsys):
    config = small_run(tmp_path / "run", train={"epochs": 0.5})
    reporter = Halting()
    with pytest.raises(Interrupted):
        train_model(config, registry=ticks_registry(), reporter=reporter)
    resume_run(tmp_path / "run", registry=ticks_registry(), reporter=ConsoleReporter())
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    said = [line.split("  ") for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    assert [line[:2] for line in (said[0], said[-1])] == [
        [f"step {row['step']}/{len(rows)}", f"epoch {row['epoch']:.2f}"] for row in (rows[0], rows[-1])
    ]
    assert [
        f"  epoch {row['epoch']:.2f}  " in line for row, line in zip(rows, reporter.beside_the_bar, strict=False)
    ] == 3 * [True]
    more = {"train": {"steps": len(rows) + 1}}  # steps are said now
    resume_run(tmp_path / "run", more, registry=ticks_registry(), reporter=ConsoleReporter())
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    assert line.startswith(f"step {len(rows) + 1}/{len(rows) + 1}  loss ")


def test_lines_of_a_run_of_steps_say_nothing_of_epochs(tmp_path, capsys):
    reporter = Halting()
    with pytest.raises(Interrupted):
        train_model(small_run(tmp_path / "run"), registry=ticks_registry(), reporter=reporter)
    assert "epoch" in rows_of(tmp_path / "run" / "metrics.jsonl")[0]
    assert "epoch" not in capsys.readouterr().err + "".join(reporter.beside_the_bar)
