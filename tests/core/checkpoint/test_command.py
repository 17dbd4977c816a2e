"""``kosmos checkpoint``: what it says, what it deletes, and what it never deletes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kosmos.checkpoint.saver import Saver
from kosmos.cli import main
from kosmos.runtime.parallel import Parallel
from kosmos.train.output import RunFolder
from support.runs import small_run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Checkpoints of the steps 10 to 60; the run file keeps two, and those of every 30 steps."""
    folder = RunFolder.create(small_run(tmp_path / "run", checkpoint={"keep_last": 2, "keep_every": 30}))
    folder.release()
    folder.write_config(small_run(folder.path, checkpoint={"keep_last": 2, "keep_every": 30}))
    saver = Saver(folder.checkpoints, Parallel(), keep_last=9)
    for step in range(10, 70, 10):
        saver.save(step, {"model.w": torch.full((8,), float(step))}, {"step": step})
    saver.wait()
    return folder


def damage(run: RunFolder, step: int) -> None:
    (run.checkpoints / f"step-{step:08d}" / "state.json").write_text("{}")


def steps(run: RunFolder) -> list[int]:
    return sorted(int(p.name.removeprefix("step-")) for p in run.checkpoints.iterdir())


def test_ls_shows_each_with_its_size_its_time_and_what_is_wrong(run: RunFolder, capsys) -> None:
    damage(run, 30)
    assert main(["checkpoint", "ls", str(run.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["step"] for one in found] == [10, 20, 30, 40, 50, 60]
    assert [one["problem"] for one in found if one["problem"]] == ["state.json does not match its hash"]
    (newest,) = (one for one in found if one["step"] == 60)
    files = (run.checkpoints / newest["name"]).rglob("*")
    assert newest["bytes"] == sum(p.stat().st_size for p in files if p.is_file())
    assert main(["checkpoint", "ls", str(run.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("  ")[2] == "whole" for line in lines] == [True, True, False, True, True, True]


def test_verify_is_well_only_where_all_are_whole_and_names_each_that_is_not(run: RunFolder, capsys) -> None:
    assert main(["checkpoint", "verify", str(run.path)]) == 0
    assert capsys.readouterr().out == "6 checkpoints, all whole; the newest is of step 60\n"
    damage(run, 20)
    damage(run, 60)
    assert main(["checkpoint", "verify", str(run.path)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"error[checkpoint]: {run.path}: step-000000{step}: state.json does not match its hash" for step in (60, 20)
    ]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ([], [30, 50, 60]),
        (["--keep-last", "1"], [30, 60]),
        (["--keep-last", "3", "--keep-every", "20"], [20, 40, 50, 60]),
    ],
)
def test_prune_keeps_what_the_run_file_or_the_options_say(
    run: RunFolder, capsys, options: list[str], kept: list[int]
) -> None:
    deleted = [step for step in (60, 50, 40, 30, 20, 10) if step not in kept]
    assert main(["checkpoint", "prune", str(run.path), *options, "--dry-run"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert steps(run) == [10, 20, 30, 40, 50, 60]
    assert main(["checkpoint", "prune", str(run.path), *options]) == 0
    said = capsys.readouterr().out.splitlines()
    assert steps(run) == kept
    assert said == [
        *(f"deleted {run.checkpoints}/step-000000{step}" for step in deleted),
        f"{len(kept)} of 6 checkpoints kept",
    ]
    assert told == [line.replace("deleted", "would delete").replace(" kept", " would be kept") for line in said]


def test_prune_counts_from_the_newest_whole_one_and_leaves_damaged_newer_ones(run: RunFolder, capsys) -> None:
    damage(run, 60)
    damage(run, 50)
    assert main(["checkpoint", "prune", str(run.path), "--keep-last", "1"]) == 0
    assert steps(run) == [30, 40, 50, 60]
    assert "step-00000060 is damaged (state.json does not match its hash); left there" in capsys.readouterr().err


def test_prune_keeps_so_many_whole_ones_whatever_stands_between(run: RunFolder, capsys) -> None:
    damage(run, 50)
    assert main(["checkpoint", "prune", str(run.path), "--keep-last", "2"]) == 0
    assert steps(run) == [30, 40, 50, 60]
    assert "step-00000050 is damaged (state.json does not match its hash); left there" in capsys.readouterr().err
    assert main(["checkpoint", "prune", str(run.path), "--keep-last", "1", "--keep-every", "60"]) == 0
    assert main(["checkpoint", "verify", str(run.path)]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "1 of 4 checkpoints kept",
        "1 checkpoint, whole; the newest is of step 60",
    ]


def test_prune_deletes_nothing_where_none_is_whole(run: RunFolder, capsys) -> None:
    for step in range(10, 70, 10):
        damage(run, step)
    assert main(["checkpoint", "prune", str(run.path), "--keep-last", "1"]) == 3
    assert "nothing is deleted, since no checkpoint is whole" in capsys.readouterr().err
    assert len(steps(run)) == 6


def test_folders_that_a_person_made_beside_the_checkpoints_are_left_alone(run: RunFolder, capsys) -> None:
    mine = run.checkpoints / "step-00000010.old"
    (run.checkpoints / "step-00000010").rename(mine)
    assert main(["checkpoint", "verify", str(run.path)]) == 0
    assert main(["checkpoint", "prune", str(run.path), "--keep-last", "1"]) == 0
    assert mine.is_dir()


def test_a_folder_that_only_has_the_name_of_a_checkpoint_is_kept_beside_so_many(run: RunFolder, capsys) -> None:
    for step in (20, 40, 60):
        (run.checkpoints / f"step-{step:08d}" / "manifest.json").unlink()
    assert main(["checkpoint", "prune", str(run.path), "--keep-last", "2", "--keep-every", "1000"]) == 0
    assert steps(run) == [20, 30, 40, 50, 60]  # 10 is gone


def test_a_folder_without_a_run_or_without_checkpoints_is_one_line(tmp_path: Path, capsys) -> None:
    assert main(["checkpoint", "verify", str(tmp_path)]) == 2
    assert "no run is here" in capsys.readouterr().err
    folder = RunFolder.create(small_run(tmp_path / "run"))
    folder.release()
    folder.write_config(small_run(folder.path))
    for action in ("verify", "prune"):
        assert main(["checkpoint", action, str(folder.path)]) == 3
        assert "no checkpoint was saved yet" in capsys.readouterr().err
    assert main(["checkpoint", "ls", str(folder.path)]) == 0
    assert capsys.readouterr().out == "no checkpoints yet\n"


def test_checkpoints_that_were_taken_away_are_missed_and_not_said_to_be_yet_to_come(run: RunFolder, capsys) -> None:
    run.append(run.metrics, [{"step": 10}, {"step": 60}])
    run.checkpoints.rename(run.path.parent / "moved")
    for words in (["checkpoint", "ls"], ["checkpoint", "verify"], ["generate", "--prompt", "a"], ["eval"], ["export"]):
        command = [*words[:2], str(run.path)] if words[0] == "checkpoint" else [words[0], str(run.path), *words[1:]]
        assert main([*command, *([str(run.path.parent / "m")] if words == ["export"] else [])]) == 3
        said = capsys.readouterr().err
        assert f"{run.checkpoints}: is not there, and metrics.jsonl tells of 60 steps; bring it back or mount" in said


def test_the_command_needs_no_torch(run: RunFolder) -> None:
    script = (
        "import sys; from kosmos.cli import main; "
        f"status = main(['checkpoint', 'prune', {str(run.path)!r}]); print(status, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False"
