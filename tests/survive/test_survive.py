"""Seven kills of real runs; ``nox -s survive`` does two hundred."""

from __future__ import annotations

from pathlib import Path

import pytest

from kosmos.checkpoint.folder import committed
from kosmos.train.run import resume_run, train_model
from support.runs import small_run, ticks_registry
from survive.harness import Summary, Survivor

needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize(("nproc", "kills"), [(1, 4), (2, 3)])
def test_a_run_that_is_killed_again_and_again_comes_to_what_one_without_a_kill_does(
    tmp_path: Path, nproc: int, kills: int
) -> None:
    summary = Summary()
    Survivor(tmp_path / "runs", nproc=nproc, seed=4, summary=summary).survive(kills)
    assert sum(summary.kills.values()) == kills
    assert summary.runs >= 1


def test_going_on_with_a_run_writes_no_checkpoint_again(tmp_path: Path) -> None:
    registry = ticks_registry()
    train_model(small_run(tmp_path / "run", train={"steps": 2}), registry=registry)
    (checkpoint,) = committed(tmp_path / "run" / "checkpoints")
    written = checkpoint.stat().st_ino
    resume_run(tmp_path / "run", registry=registry)
    assert checkpoint.stat().st_ino == written
