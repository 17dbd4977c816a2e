"""What a run that goes on does otherwise than before, and what it keeps of that."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kosmos.checkpoint.folder import committed
from kosmos.cli import main
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry


class Said(Reporter):
    """Keeps the lines, and is gone after a step if it is told to."""

    def __init__(self, gone_after: int | None = None) -> None:
        self.lines: list[str] = []
        self.gone_after = gone_after

    def say(self, line: str) -> None:
        self.lines.append(line)

    def step(self, row: Any, steps: int) -> None:
        if row["step"] == self.gone_after:
            raise Gone


class Gone(Exception):
    """As of a process that is killed."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps, with checkpoints of the third and the last."""
    output = tmp_path_factory.mktemp("changes") / "run"
    train_model(small_run(output, checkpoint={"every_steps": 3}), registry=ticks_registry())
    return output


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def resume(run: Path, over: dict[str, Any] | None = None, gone_after: int | None = None) -> list[str]:
    """What it said of changes."""
    said = Said(gone_after)
    try:
        resume_run(run, over, registry=ticks_registry(), reporter=said)
    except Gone:
        assert gone_after is not None
    return [line for line in said.lines if line.startswith("changed: ")]


def changes(run: Path) -> list[tuple[int, Any]]:
    return [(row["step"], row["changed"]) for row in rows_of(run / "changes.jsonl")]


MORE = {"train": {"steps": 8, "weight_decay": 50.0, "optimizer": {"betas": [0.8, 0.9]}}, "trackers": []}
CHANGED = {"train.steps": [6, 8], "train.optimizer.betas": [None, [0.8, 0.9]], "train.weight_decay": [0.1, 50.0]}


def test_a_run_that_goes_on_with_other_settings_says_and_keeps_which(run: Path, capsys) -> None:
    words = "train.steps 6 -> 8, train.optimizer.betas null -> [0.8, 0.9], train.weight_decay 0.1 -> 50.0"
    assert resume(run, MORE) == [f"changed: {words}"]
    (row,) = rows_of(run / "changes.jsonl")
    launches = {found["launch"] for found in rows_of(run / "goodput.jsonl")}
    assert (row["step"], row["changed"]) == (7, CHANGED) and row["launch"] in launches
    assert resume(run, MORE) == resume(run) == []
    assert changes(run) == [(7, CHANGED)]
    assert main(["report", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == [row]
    assert main(["report", str(run)]) == 0
    assert f"changed    from step 7 on: {words}" in capsys.readouterr().out.splitlines()


def test_a_run_that_goes_on_as_it_was_keeps_and_lists_no_changes(run: Path, capsys) -> None:
    shutil.rmtree(committed(run / "checkpoints")[0])
    assert resume(run) == []
    assert not (run / "changes.jsonl").exists()
    assert main(["report", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == []


def test_changes_stay_as_the_run_file_does_where_their_steps_are_taken_again(run: Path) -> None:
    resume(run, {"train": {"steps": 9, "weight_decay": 0.2}}, gone_after=8)  # no step of it was saved
    assert changes(run) == [(7, {"train.steps": [6, 9], "train.weight_decay": [0.1, 0.2]})]
    shutil.rmtree(run / "checkpoints" / "step-00000006")
    assert resume(run, {"train": {"steps": 8}}) == ["changed: train.steps 9 -> 8"]
    assert [step for step, _ in changes(run)] == [4, 4]


def test_what_no_step_was_taken_with_is_no_change(run: Path) -> None:
    assert resume(run, {"train": {"steps": 5}}) == []
    resume(run, {"train": {"steps": 5, "weight_decay": 0.2}})
    assert not (run / "changes.jsonl").exists()
