"""``kosmos checkpoint branch``: a run of its own from a checkpoint of another one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kosmos.checkpoint import folder as folders
from kosmos.checkpoint.folder import committed, step_of
from kosmos.cli import main
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry

BROKEN = {"sources": [{"path": "ticks", "options": {"size": 200, "broken": list(range(0, 200, 9))}}]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of nine steps, of which the last three were taken with another decay; checkpoints of every third."""
    output = tmp_path_factory.mktemp("branch") / "run"
    every = {"checkpoint": {"every_steps": 3, "keep_last": 9}, "evaluate": {"every_steps": 3}, "data": BROKEN}
    config = small_run(output, train={"steps": 6, "schedule": "constant"}, trackers=["tensorboard"], **every)
    train_model(config, registry=ticks_registry())
    resume_run(output, {"train": {"steps": 9, "weight_decay": 0.2}}, registry=ticks_registry())
    return output


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def steps(run: Path, ledger: str) -> list[int]:
    return [row["step"] for row in rows_of(run / ledger)]


def losses(run: Path) -> list[Any]:
    return [row["loss"] for row in rows_of(run / "metrics.jsonl")]


def test_a_branch_goes_on_from_a_step_as_the_run_itself_would_and_leaves_it_as_it_is(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, new = files(trained), tmp_path / "new" / "run"
    assert main(["checkpoint", "branch", str(trained), str(new), "--step", "3"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{new}: has the steps of {trained} up to 3; go on with: kosmos train --resume {new}\n"
    changed = "train.steps 6 -> 9, train.weight_decay 0.1 -> 0.2"
    assert said.err == f"hint: it has the settings of today, with what was changed since: {changed}\n"
    assert (steps(new, "metrics.jsonl"), steps(new, "held_out.jsonl")) == ([1, 2, 3], [0, 3])
    assert {step > 3 for step in steps(trained, "quarantine.jsonl")} == {True, False}
    assert rows_of(new / "quarantine.jsonl") == [r for r in rows_of(trained / "quarantine.jsonl") if r["step"] <= 3]
    assert not {"tensorboard", "goodput.jsonl", ".in-use"} & {path.name for path in new.iterdir()}
    assert [step_of(c) for c in committed(new / "checkpoints")] == [3]
    resume_run(new, {"train": {"weight_decay": 0.1, "steps": 6}}, registry=ticks_registry())
    assert losses(new) == losses(trained)[:6]
    assert files(trained) == before
    assert main(["report", str(new)]) == 0
    place = f"changed    from step 4 on: output {trained} -> {new}"
    told = capsys.readouterr().out.splitlines()
    assert f"branch     of {trained}, step 3" in told
    assert [line for line in told if "changed" in line][1:] == [
        place, "changed    from step 4 on: train.steps 9 -> 6, train.weight_decay 0.2 -> 0.1",
    ]  # fmt: skip


def test_a_branch_needs_a_checkpoint_of_its_step_and_a_new_folder(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "branch", str(trained), str(tmp_path / "new"), "--step", "4"]) == 3
    assert "no checkpoint of step 4; steps: 3, 6, 9" in capsys.readouterr().err
    assert main(["checkpoint", "branch", str(trained), str(tmp_path), "--step", "3"]) == 2
    assert f"{tmp_path}: is there already; name a folder that is not" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
    assert main(["train", "--resume", str(trained), "--output", str(tmp_path / "new")]) == 2
    assert "kosmos checkpoint branch" in capsys.readouterr().err


@pytest.mark.parametrize("links", [True, False])
def test_the_files_of_a_branch_are_links_where_the_disk_has_them_and_outlive_the_run(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    run, new = Path(shutil.copytree(trained, tmp_path / "run")), tmp_path / "new"
    assert main(["checkpoint", "branch", str(run), str(new), "--step", "6"]) == 0
    (tensors, *_), (copied, *_) = (
        sorted(of.glob("checkpoints/step-00000006/tensors/*.safetensors")) for of in (run, new)
    )
    assert tensors.samefile(copied) == links
    shutil.rmtree(run)
    assert main(["checkpoint", "verify", str(new)]) == 0


def test_a_branch_that_cannot_be_made_leaves_nothing(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "sync", full)
    assert main(["checkpoint", "branch", str(trained), str(tmp_path / "new"), "--step", "3"]) == 4
    assert "cannot copy what" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
