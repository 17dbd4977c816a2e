"""``kosmos tune`` with real trials: what it prints, what it refuses, and that it leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kosmos.cli import main
from kosmos.run_file import make_run, read_run_file
from kosmos.tune.outcome import Facts, Outcome, Step
from kosmos.tune.processes import Trials, _told
from support.command import SMALL, Started, kosmos

SETTINGS = [*SMALL, "data.lanes=2", "data.workers=0", "train.compile=false"]
"""Kernels would be compiled anew in each trial: what is compiled goes with its folder."""
FACTS = Facts(
    device="cpu", device_name="CPU", precision="float32", parameters=1000, cores=1, threads=1, processes=1, workers=0,
    most_workers=1, at_once_refused=None, compile_refused="it is not", longest=100,
)  # fmt: skip


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made, and two threads to share out."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def test_a_search_measures_what_can_be_tried_and_leaves_only_the_run_file_that_was_asked_for(temporary, tmp_path):
    run_file = tmp_path / "run.yaml"
    run_file.write_text("data: {sources: [sums]}\nprofile: {ranks: [0, 1]}  # of more processes than there are here\n")
    (tmp_path / "empty").mkdir()
    before = shared_memory()
    more = ["--steps", 2, "--rounds", 1, "--json", "--write", tmp_path / "fast.yaml"]
    search = Started("tune", run_file, *SETTINGS, *more, "train.steps=19", OMP_NUM_THREADS="2")
    out, said = search.process.communicate(timeout=120)
    assert search.process.returncode == 0, said
    found = json.loads(out)
    as_it_is, at_once = found["tried"]
    assert as_it_is["overrides"] == {}
    assert at_once["overrides"] == {"train.lanes_at_once": 2}
    assert as_it_is["tokens_per_s"] > 0
    assert at_once["tokens_per_s"] > 0
    assert at_once["times"] == pytest.approx(at_once["tokens_per_s"] / as_it_is["tokens_per_s"], rel=1e-4)
    assert found["facts"]["threads"] == 2
    assert found["facts"]["longest"] <= 256
    assert "round 1 of 1  train.lanes_at_once=2: " in said
    written = make_run(read_run_file(tmp_path / "fast.yaml"))
    assert written.train.steps == 19
    assert written.train.lanes_at_once == (2 if at_once["is_faster"] else 1)
    assert written.profile is not None
    assert written.profile.ranks == [0, 1]
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "fast.yaml", "run.yaml", "temporary"]
    assert shared_memory() <= before
    assert search.processes() == []


class SteadyTrials(Trials):
    """Of a machine on which each step takes a second, and where FILE appears while one is made."""

    file: Path

    def run(self, settings: Mapping[str, Any], *, steps: int, seconds: float = 0.0, look: bool = False) -> Outcome:
        self.file.write_text("another's")
        return Outcome([Step(1.0, 0.0, 100)] * steps, warm_up_s=2.0, warm_up_steps=2, facts=FACTS)


def test_a_file_that_cannot_be_written_after_all_costs_neither_the_figures_nor_the_command(
    temporary, tmp_path, monkeypatch, capsys
):
    file = tmp_path / "fast.yaml"
    monkeypatch.setattr(SteadyTrials, "file", file, raising=False)
    monkeypatch.setattr("kosmos.tune.processes.Trials", SteadyTrials)
    assert main(["tune", "--data", "sums", "--json", "--write", str(file), "train.steps=9"]) == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["tried"][0]["tokens_per_s"] == 100
    assert told.err.splitlines()[-1] == (
        f"error[config]: --write {file}: cannot write (File exists); train with: kosmos train train.steps=9 --data sums"
    )
    assert file.read_text() == "another's"


def test_of_several_ranks_the_one_that_lacks_memory_or_says_what_is_wrong_is_heard(tmp_path):
    broken = Outcome(error="error[internal]: RuntimeError: Connection closed by peer", status=1)
    wrong = Outcome(error="error[data]: no such folder", status=3)
    lacking = Outcome(error="error[training]: out of memory", status=4, out_of_memory=True)
    (tmp_path / "said").touch()
    for rank, (outcome, heard) in enumerate([(Outcome(), None), (broken, broken), (wrong, wrong), (lacking, lacking)]):
        outcome.write(tmp_path, rank)
        if heard is not None:
            found = _told(tmp_path, 1, rank + 1)
            assert (found.error, found.status, found.out_of_memory) == (heard.error, heard.status, heard.out_of_memory)


def test_a_signal_while_the_process_of_a_trial_starts_ends_that_process_too(temporary, monkeypatch):
    started = []

    class Interrupting(subprocess.Popen):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            started.append(self)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Interrupting)
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), Trials(None) as trials:
        trials.run({}, steps=1)
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    assert signal.getsignal(signal.SIGTERM) is handler
    assert list(temporary.iterdir()) == []


def test_ctrl_c_ends_the_trial_at_once_and_leaves_nothing(temporary):
    search = Started("tune", "--data", "sums", *SMALL, "data.workers=1")
    search.wait_for(lambda: len(search.processes()) > 2)  # a trial, and its data worker
    search.send(signal.SIGINT)
    status, said = search.end(at_most_s=20)
    assert status == 130
    assert said.splitlines()[-1].startswith("error[interrupted]: stopped (SIGINT); nothing was chosen")
    assert "Traceback" not in said
    assert search.processes() == []
    assert list(temporary.iterdir()) == []


def test_a_trial_that_is_killed_says_so_with_the_status_of_training(temporary):
    search = Started("tune", "--data", "sums", *SETTINGS, "train.gradient_checkpointing=true", OMP_NUM_THREADS="2")
    search.wait_for(lambda: len(search.processes()) > 1)
    (trial,) = [number for number in search.processes() if number != search.process.pid]
    os.kill(trial, signal.SIGKILL)
    status, said = search.end()
    assert status == 4
    assert said.splitlines()[-1].startswith("error[training]: out of memory, and by none of what was tried")


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["train.step=2"], 2, "error[config]: command line: train.step: unknown field"),
        (["--nproc", "2"], 2, "error[config]: data.lanes: 1 lane cannot be dealt evenly to 2 processes"),
        (["--nproc", "0"], 2, "error[config]: --nproc 0: expected the number of processes"),
        (["nothing.yaml"], 2, "error[config]: nothing.yaml: cannot read the run file"),
        (["--write", "there.yaml"], 2, "error[config]: there.yaml: exists already; name another file"),
        (["--lanes"], 2, "error[config]: --lanes: unknown option"),
    ],
)
def test_what_training_refuses_before_it_starts_is_refused_at_once(
    arguments, status, line, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("there.yaml").write_text("modalities: []\n")
    assert main(["tune", *arguments]) == status
    assert capsys.readouterr().err.startswith(line)


def test_what_training_refuses_as_it_opens_a_run_is_refused_with_its_line_and_status():
    refused = kosmos("tune", "--modalities", "smell", *SMALL)
    assert refused.returncode == 3
    assert refused.stderr.splitlines()[-1].startswith("error[plugin]: modality 'smell': no installed plugin brings it")
