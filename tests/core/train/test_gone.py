"""What is gone of a run: without its checkpoints it does not begin again over its history, rows are missed aloud."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from kosmos.errors import CheckpointError, TrainingError
from kosmos.train.gone import check_checkpoints
from kosmos.train.output import RunFolder
from kosmos.train.run import resume_run, train_model
from support.runs import Listener, rows_of, small_run, ticks_registry

EVERY_2 = {"checkpoint": {"every_steps": 2}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps."""
    output = tmp_path_factory.mktemp("gone") / "run"
    train_model(small_run(output, **EVERY_2), registry=ticks_registry())
    return output


@pytest.mark.parametrize("rows_of_goodput", [True, False])
def test_a_run_whose_folder_of_checkpoints_is_empty_is_left_as_it_is(
    trained: Path, tmp_path: Path, rows_of_goodput: bool
) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    (run / "checkpoints").rename(tmp_path / "disk")  # which is not mounted
    (run / "checkpoints").mkdir()
    says = r"goodput\.jsonl tells of one of step 6"
    if not rows_of_goodput:
        (run / "goodput.jsonl").unlink()
        says = r"metrics\.jsonl tells of 6 steps, with checkpoint\.every_steps 2"
    before = {file: file.read_bytes() for file in run.glob("*.jsonl")}
    more = {"train": {"steps": 7}}
    with pytest.raises(CheckpointError, match=rf"checkpoints: holds no checkpoint, and {says}; bring it back or mount"):
        resume_run(run, more, registry=ticks_registry())
    assert {file: file.read_bytes() for file in run.glob("*.jsonl")} == before
    (run / "checkpoints").rmdir()
    (run / "checkpoints").symlink_to(tmp_path / "disk")
    assert resume_run(run, more, registry=ticks_registry()).step == 7


def test_who_takes_the_metrics_away_begins_anew_as_the_message_says(trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    for checkpoint in (run / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    with pytest.raises(CheckpointError, match=r"\(in this folder: take metrics\.jsonl away\)$"):
        resume_run(run, registry=ticks_registry())
    (run / "metrics.jsonl").unlink()
    assert resume_run(run, registry=ticks_registry()).step == 6
    assert [row["step"] for row in rows_of(run / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]


class Fills(Listener):
    """Lets no file grow beyond what ledgers need, from the first step on."""

    def step(self, row: Any, steps: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_run_whose_every_save_failed_begins_again(tmp_path: Path) -> None:
    run, said, limits = tmp_path / "run", Listener(), resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(TrainingError, match="cannot write the checkpoint of step 6"):
            train_model(small_run(run, **EVERY_2), registry=ticks_registry(), reporter=Fills())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(rows_of(run / "metrics.jsonl")) == 6
    assert rows_of(run / "goodput.jsonl")[-1]["saves"]["failed"] == 3
    assert resume_run(run, registry=ticks_registry(), reporter=said).step == 6
    assert "going on from step 0 (no checkpoint was saved yet)" in said.said


def launch(name: str, first: int, last: int, **saves: Any) -> dict[str, Any]:
    """A row of goodput.jsonl."""
    row = {"launch": name, "begin": 0.0, "end": 1.0, "steps": [first, last], "seconds": {"productive": 1.0}}
    return {**row, "saves": saves} if saves else row


@pytest.mark.parametrize(
    ("steps", "goodput", "why"),
    [
        (60, [launch("a", 0, 60)], r"metrics\.jsonl tells of 60 steps, with checkpoint\.keep_every 15"),
        (15, [launch("a", 0, 15)], None),  # its save was ordered at most
        (60, [launch("a", 0, 60, failed=4, problem="No space left")], None),
        (60, [launch("a", 0, 30, newest=30), launch("a", 30, 60, newest=30, failed=2)], "tells of one of step 30"),
        (33, [launch("a", 0, 30), launch("b", 30, 30)], "tells of one of step 30"),  # of an older version
        (9, [launch("a", 0, 30, newest=30), launch("b", 0, 9)], None),  # begun anew
        (60, [launch("a", 0, 30, newest=30), launch("b", 0, 60, failed=4, problem="quota")], None),
    ],
)
def test_what_proves_that_a_checkpoint_was_saved(
    tmp_path: Path, steps: int, goodput: list[dict[str, Any]], why: str | None
) -> None:
    run = RunFolder.create(small_run(tmp_path / "run"))
    run.release()
    run.write_config(small_run(run.path, checkpoint={"every_steps": 20, "keep_every": 15}))
    run.append(run.metrics, [{"step": step} for step in range(1, steps + 1)])
    run.goodput.write_text("".join(f"{json.dumps(row)}\n" for row in goodput))
    if why is None:
        check_checkpoints(run)
    else:
        with pytest.raises(CheckpointError, match=why):
            check_checkpoints(run)
        run.metrics.write_text("")
        check_checkpoints(run)


def test_a_first_checkpoint_that_was_being_written_as_the_run_was_killed_is_none(tmp_path: Path) -> None:
    run = RunFolder.create(small_run(tmp_path / "run"))
    run.release()
    run.write_config(small_run(run.path, **EVERY_2))
    run.append(run.metrics, [{"step": step} for step in (1, 2, 3)])
    (run.checkpoints / ".partial-step-00000002").mkdir()
    check_checkpoints(run)
    run.append(run.changes, [{"step": 3, "launch": "b", "changed": {}}])
    with pytest.raises(CheckpointError, match=r"changes\.jsonl tells that the run went on from step 2; "):
        check_checkpoints(run)


@pytest.mark.parametrize(
    ("left", "says"),
    [
        ([1, 2], "the rows of 4 of the 6 steps up to the checkpoint (from step 3 on)"),
        ([], "the rows of 6 of the 6 steps up to the checkpoint (from step 1 on)"),
        (None, "the rows of 6 of the 6 steps up to the checkpoint (from step 1 on)"),
        ([1, 2, 3, 4, 5, 6], ""),
        ([1, 2, 4, 5, 6], "the rows of 1 of the 6 steps up to the checkpoint (from step 3 on)"),
    ],
)
def test_rows_that_are_missing_below_the_checkpoint_are_warned_of(
    trained: Path, tmp_path: Path, left: list[int] | None, says: str
) -> None:
    run, said = Path(shutil.copytree(trained, tmp_path / "run")), Listener()
    rows = rows_of(run / "metrics.jsonl")
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows if row["step"] in (left or ())))
    if left is None:
        (run / "metrics.jsonl").unlink()
    resume_run(run, {"train": {"steps": 7}}, registry=ticks_registry(), reporter=said)
    line = f"warning: metrics.jsonl: {says} are missing and will not be made again; sums over the run lack them"
    assert [one for one in said.said if "are missing" in one] == ([line] if says else [])
    assert [row["step"] for row in rows_of(run / "metrics.jsonl")] == [*(left or ()), 7]
