"""Which checkpoint of another run a run begins with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kosmos import train_model
from support.runs import Listener, small_run, ticks_registry


def begun(output: Path, **over: Any) -> list[str]:
    """What a run of one step says."""
    config = small_run(output, **{"train": {"steps": 1}, **over})
    train_model(config, registry=ticks_registry(), reporter=(listener := Listener()))
    return listener.said


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a checkpoint of each of its two steps."""
    folder = tmp_path_factory.mktemp("first") / "run"
    begun(folder, train={"steps": 2}, checkpoint={"every_steps": 1, "keep_last": 3})
    return folder


@pytest.fixture
def first(two_steps: Path, tmp_path: Path) -> Path:
    """Its copy, which a test may break."""
    return Path(shutil.copytree(two_steps, tmp_path / "first"))


def flip(folder: Path) -> None:
    """A byte of a file of tensors."""
    shard = next(folder.glob("tensors/*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "cause"),
    [(flip, "does not match its hash"), (lambda folder: (folder / "manifest.json").unlink(), "manifest.json is missi")],
)
def test_that_a_damaged_checkpoint_was_passed_over_is_told(first: Path, tmp_path: Path, damage, cause: str) -> None:
    damage(first / "checkpoints" / "step-00000002")
    said = begun(tmp_path / "second", init=str(first))
    (warned,) = [line for line in said if line.startswith("warning: init: ")]
    assert warned.startswith(f"warning: init: passed over a damaged checkpoint of {first}: step-00000002: ")
    assert cause in warned and any(line.endswith("step-00000001") for line in said if line.startswith("begins with"))
