"""A run that is stopped, killed or interrupted twice, as a process of its own with a real worker."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kosmos.cli import main
from kosmos.errors import ConfigError, Interrupted
from kosmos.runtime.parallel import Parallel
from kosmos.train.run import train_model
from kosmos.train.stopping import StopRequest, how_to_go_on, interrupted_in_words
from support.command import SMALL, Started, command, environment, install_plugin, lines_in
from support.runs import rows_of, small_run, ticks_registry

STEPS = 150
RUN = (*SMALL, f"train.steps={STEPS}", "data.workers=1", "evaluate.max_documents=8", "checkpoint.every_steps=20")

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


def losses(output: Path) -> list[float]:
    return [row["loss"] for row in rows_of(output / "metrics.jsonl")]


def newest_step(output: Path) -> int:
    return max(int(folder.name.removeprefix("step-")) for folder in (output / "checkpoints").glob("step-*"))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    output = tmp_path_factory.mktemp("whole") / "run"
    assert main(["train", "--output", str(output), *RUN]) == 0
    found = losses(output)
    assert len(found) == STEPS
    return found


@pytest.fixture(autouse=True)
def sighup_is_heard() -> Iterator[None]:
    """Under nohup this process ignores SIGHUP, and so would the commands that it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_after_sigint_sigterm_and_sigkill_a_resumed_run_has_the_losses_of_one_without(
    tmp_path: Path, uninterrupted: list[float]
) -> None:
    output = tmp_path / "run"
    metrics = output / "metrics.jsonl"
    arguments: tuple[object, ...] = ("train", "--output", output, *RUN)
    for number, after in ((signal.SIGINT, 5), (signal.SIGTERM, 45), (signal.SIGKILL, 85)):
        run = Started(*arguments)
        run.wait_for(lambda least=after: lines_in(metrics) >= least)  # type: ignore[misc]
        assert len(run.processes()) > 1  # a worker among them
        run.send(number, group=number == signal.SIGINT)
        status, said = run.end()
        if number == signal.SIGKILL:
            assert status == -signal.SIGKILL
        else:
            assert status == 130
            step = newest_step(output)
            message = f"error[interrupted]: stopped at step {step} of {STEPS} ({number.name}), all saved; "
            assert said.splitlines()[-1] == f"{message}go on with: kosmos train --resume {output}"
            assert lines_in(metrics) == step
            assert "Traceback" not in said
        wait_until_gone(run)
        arguments = ("train", "--resume", output)
    assert main(["train", "--resume", str(output)]) == 0
    assert losses(output) == uninterrupted
    assert not (output / "quarantine.jsonl").read_text()


def wait_until_gone(run: Started) -> None:
    """A worker notices at its next row that nobody reads it."""
    end = time.monotonic() + 20
    while left := run.processes():
        assert time.monotonic() < end, f"processes {left} were left behind"
        time.sleep(0.05)


SLEEPER = """
import time
from kosmos import ObserverSpec, hookimpl

KOSMOS_API = 1

@hookimpl
def kosmos_observers():
    yield ObserverSpec(name="sleeper", target="acme_sleeper:sleeper", summary="Sleeps.")

def sleeper():
    return lambda row: time.sleep(100)
"""


def test_a_second_sigint_stops_at_once(tmp_path: Path) -> None:
    site = install_plugin(tmp_path / "site", "sleeper", SLEEPER)
    output = tmp_path / "run"
    run = Started("train", "--output", output, *RUN, "observers=[sleeper]", path=[site])
    run.wait_for(lambda: lines_in(output / "metrics.jsonl") > 0)
    run.send(signal.SIGINT)
    with pytest.raises(AssertionError, match="in time"):
        run.wait_for(lambda: False, at_most_s=1)
    run.send(signal.SIGINT)
    status, said = run.end(at_most_s=20)
    assert status == 130
    assert "Traceback" not in said
    told = "error[interrupted]: stopped at once; steps since the newest checkpoint are lost; go on with: "
    assert said.count(f"{told}kosmos train --resume {output}\n") == 1
    wait_until_gone(run)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGUSR1])
def test_a_second_sigint_stops_at_once_whatever_came_before(first: signal.Signals) -> None:
    request = StopRequest()
    put_back = request.install()
    try:
        for number in (first, signal.SIGINT, first):  # of one stop: a scheduler's, a terminal's, a launcher's
            signal.raise_signal(number)
        assert request.signal_name == first.name
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        put_back()


SLOW_TO_OPEN = """
import os, signal
from kosmos import DatasetSpec, hookimpl

KOSMOS_API = 1

@hookimpl
def kosmos_datasets():
    yield DatasetSpec(name="slow", target="acme_slow:slow", summary="Never opens.")

def slow(request):
    swallowed = os.environ.get("SWALLOWED", "")
    try:
        os.kill(os.getpid(), getattr(signal, os.environ["SENT"]))
    except KeyboardInterrupt:
        if not swallowed:
            raise
    if swallowed == "opens":
        from kosmos.data.samples import SumsSource

        return SumsSource(request)
    raise AttributeError("module 'numpy' has no attribute 'minimum'")
"""


def test_a_signal_before_the_run_has_begun_ends_it_in_words_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = install_plugin(tmp_path / "site", "slow", SLOW_TO_OPEN)
    train = ["train", "--data", "slow", "--output", str(tmp_path / "run"), *SMALL]
    said = "error[interrupted]: stopped (%s) before it began: nothing was saved\n"
    assert Started(*train, path=[site], SENT="SIGTERM").end() == (130, said % "SIGTERM")
    monkeypatch.syspath_prepend(str(site))
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        monkeypatch.setenv("SENT", name)
        assert main([*train, "--plugins", "slow"]) == 130
        assert capsys.readouterr().err == said % name
        assert not (tmp_path / "run").exists()
    for swallowed in ("opens", "fails"):  # as torch does while it is imported
        monkeypatch.setenv("SWALLOWED", swallowed)
        assert main([*train, "--plugins", "slow"]) == 130
        assert capsys.readouterr().err == said % name
        assert not (tmp_path / "run").exists()


def test_a_signal_after_the_run_says_that_what_was_saved_stays() -> None:
    @interrupted_in_words()
    def run() -> None:
        StopRequest().install()()
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match=r"^stopped \(SIGTERM\) as it ended: what was saved stays$"):
        run()


def test_an_allocation_that_is_over_or_short_does_not_keep_a_run_from_its_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seconds, ends in ((-100, None), (200, 150.0), (1000, 700.0)):
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + seconds))
        request = StopRequest()
        assert request.cause is None
        assert (request.ends_at is None) == (ends is None)
        if ends is not None and request.ends_at is not None:
            assert request.ends_at - request.margin_s - time.time() == pytest.approx(ends, abs=2)


def test_a_launch_file_states_how_long_before_the_end_the_run_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 1000))
    for stated, notice_s in (("60", 60.0), ("600", 600.0), ("", 300.0)):
        monkeypatch.setenv("KOSMOS_NOTICE_S", stated)
        request = StopRequest()
        assert (request.margin_s, request.cause) == (notice_s, None)
        assert request.ends_at is not None
        request.ends_at = time.time() + notice_s - 1
        assert re.fullmatch(r"the allocation ends in \d+ s", str(request.cause))
    for wrong in ("soon", "0", "-5", "1.5"):
        monkeypatch.setenv("KOSMOS_NOTICE_S", wrong)
        with pytest.raises(ConfigError, match=f"KOSMOS_NOTICE_S: expected seconds .* got '{wrong}'"):
            train_model(small_run(tmp_path / "run"), registry=ticks_registry())
        assert not (tmp_path / "run").exists()


ENDING = """
import os, time
from kosmos import DatasetSpec, hookimpl

KOSMOS_API = 1

@hookimpl
def kosmos_datasets():
    yield DatasetSpec(name="ending", target="acme_ending:ending", summary="Sums in an allocation that ends.")

def ending(split):
    from kosmos.data.samples import SumsSource

    os.environ["SLURM_JOB_END_TIME"] = str(int(time.time()) + 304)  # opened right before the run begins
    return SumsSource(split)
"""


def test_other_signals_and_an_allocation_that_ends_stop_a_run_with_a_checkpoint(tmp_path: Path) -> None:
    long = ("train", *RUN, "train.steps=100000", "--output")
    site = install_plugin(tmp_path / "site", "ending", ENDING)
    ended = Started(*long, tmp_path / "slurm", "--data", "ending", path=[site])
    started = [(ended, "slurm", r"the allocation ends in \d+ s")]
    for number in (signal.SIGUSR1, signal.SIGHUP):
        told = Started(*long, tmp_path / number.name)
        told.wait_for(lambda n=number.name: lines_in(tmp_path / n / "metrics.jsonl") >= 3)  # type: ignore[misc]
        told.send(number)
        started.append((told, number.name, number.name))
    for run, output, cause in started:
        status, said = run.end()
        assert status == 130
        step = newest_step(tmp_path / output)
        assert re.search(rf"stopped at step {step} of 100000 \({cause}\), all saved; go on with: ", said), said
        wait_until_gone(run)


def test_a_run_that_nobody_listens_to_any_more_comes_to_its_end(tmp_path: Path) -> None:
    """As of ``kosmos train | head``, or with a log on a disk that is full."""
    reads, closed = os.pipe()
    os.close(reads)
    with os.fdopen(closed, "w") as nobody, Path("/dev/full").open("w") as full:
        for name, said in (("closed", nobody), ("full", full)):
            train = command("train", *RUN, "train.steps=30", "data.workers=0", "--output", tmp_path / name)
            done = subprocess.run(train, env=environment(), stdout=said, stderr=said, timeout=120, check=False)
            assert done.returncode == 0
            assert newest_step(tmp_path / name) == lines_in(tmp_path / name / "metrics.jsonl") == 30


@pytest.mark.parametrize("on_a_terminal", [True, False])
def test_who_presses_ctrl_c_on_a_terminal_is_told_at_once_that_it_was_heard(
    monkeypatch: pytest.MonkeyPatch, on_a_terminal: bool
) -> None:
    ours, theirs = pty.openpty() if on_a_terminal else os.pipe()
    with os.fdopen(ours, "rb", 0) as shown, os.fdopen(theirs, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        request = StopRequest()
        put_back = request.install()
        try:
            os.kill(os.getpid(), signal.SIGINT)
            assert request.wanted()
        finally:
            put_back()
        os.write(stderr.fileno(), b"end\n")
        said = b""
        while b"end" not in said:
            said += shown.read(200)
    told = "stopping once the step under way is done and saved; Ctrl-C again stops at once"
    assert " ".join(said.decode().split()).startswith(told if on_a_terminal else "end")


@pytest.mark.parametrize(
    ("processes", "on_this_node", "said"),
    [
        (1, 1, "kosmos train --resume runs/a"),
        (4, 4, "kosmos train --resume runs/a --nproc 4"),  # by torchrun, too
        (8, 4, "kosmos train --resume runs/a (in 8 processes, started on their nodes as these were)"),
    ],
)
def test_a_stopped_run_tells_how_to_go_on_with_as_many_processes(processes: int, on_this_node: int, said: str) -> None:
    assert how_to_go_on(Path("runs/a"), Parallel(0, processes, 0, on_this_node)) == said
