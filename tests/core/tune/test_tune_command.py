"""``kosmos tune`` with real trials: what it prints, what it refuses, and that it leaves nothing."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from kosmos.cli import main
from kosmos.run_file import make_run, read_run_file
from support.command import SMALL, Started, kosmos

SETTINGS = [*SMALL, "data.lanes=2", "data.workers=0"]


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
    run_file.write_text("modalities: [image]\ntrain:\n  compile: false  # to be tried\n")
    (tmp_path / "empty").mkdir()
    before = shared_memory()
    more = [
        "--steps",
        2,
        "--rounds",
        1,
        "--json",
        "--write",
        tmp_path / "fast.yaml",
        "backbone.dropout=0.1",
        "train.steps=9",
    ]
    search = Started("tune", run_file, *SETTINGS, *more, OMP_NUM_THREADS="2")
    out, said = search.process.communicate(timeout=120)
    assert search.process.returncode == 0, said
    found = json.loads(out)
    as_it_is, at_once, compiled = found["tried"]
    assert as_it_is["overrides"] == {}
    assert at_once["overrides"] == {"train.lanes_at_once": 2}
    assert at_once["note"].startswith("not possible: train.lanes_at_once: dropout")
    assert compiled["overrides"] == {"train.compile": "auto"}
    assert as_it_is["tokens_per_s"] > 0
    assert compiled["tokens_per_s"] > 0
    assert compiled["times"] == pytest.approx(compiled["tokens_per_s"] / as_it_is["tokens_per_s"])
    assert found["facts"]["threads"] == 2
    assert found["facts"]["longest"] <= 256
    assert "round 1 of 1  train.lanes_at_once=2: not possible: " in said
    written = make_run(read_run_file(tmp_path / "fast.yaml"))
    assert written.backbone.options["dropout"] == 0.1
    assert written.train.compile == ("auto" if compiled["is_faster"] else False)
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "fast.yaml", "run.yaml", "temporary"]
    assert shared_memory() <= before
    assert search.processes() == []


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
