"""Which checkpoint of another run a run begins with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kosmos import resume_run, train_model
from kosmos.checkpoint.folder import digest
from kosmos.errors import ConfigError
from kosmos.train.begun import Begun, read_begun, write_begun
from kosmos.train.branch import branch
from kosmos.train.output import RunFolder
from support.runs import Listener, rows_of, small_run, ticks_registry


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


def test_a_folder_that_is_not_there_is_refused_before_data_are_opened(two_steps: Path, tmp_path: Path) -> None:
    near = two_steps.with_name("ru")
    data = {"sources": [str(tmp_path / "nowhere.jsonl")]}  # which would be refused as it is opened
    with pytest.raises(ConfigError, match=rf"^init: {near}: no run is here; did you mean {two_steps.name}\?"):
        begun(tmp_path / "second", init=str(near), data=data)
    assert not (tmp_path / "second").exists()


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


def pinned(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "begun.json").read_text())["init"]


def killed(first: Path, folder: Path) -> Path:
    """A run that began with step 1 of the first, and was killed before a checkpoint; the first has step 2 since."""
    later = first / "checkpoints" / "step-00000002"
    later.rename(first / "later")
    begun(folder, init=str(first))
    shutil.rmtree(folder / "checkpoints" / "step-00000001")
    (folder / "goodput.jsonl").unlink()
    (first / "later").rename(later)
    return folder


def resumed(folder: Path, **over: Any) -> list[str]:
    resume_run(folder, over, registry=ticks_registry(), reporter=(listener := Listener()))
    return listener.said


def test_a_run_without_a_checkpoint_begins_again_with_the_step_that_it_had_begun_with(
    first: Path, tmp_path: Path
) -> None:
    second = killed(first, tmp_path / "second")
    there = first / "checkpoints" / "step-00000001"
    noted = {"path": str(first), "step": 1, "manifest": digest(there / "manifest.json")}
    losses = [row["loss"] for row in rows_of(second / "metrics.jsonl")]
    assert pinned(second) == noted
    assert f"begins with backbone, streams.ticks.encoder, streams.ticks.connector of {there}" in resumed(second)
    assert pinned(second) == noted and [row["loss"] for row in rows_of(second / "metrics.jsonl")] == losses
    branch(RunFolder.open(second), 1, tmp_path / "third")
    assert pinned(tmp_path / "third") == noted
    begun(tmp_path / "fourth")
    assert not (tmp_path / "fourth" / "begun.json").exists()


def test_a_step_that_is_gone_or_another_now_is_refused(first: Path, tmp_path: Path) -> None:
    second, taken = killed(first, tmp_path / "second"), first / "checkpoints" / "step-00000001"
    with pytest.raises(ConfigError, match=r"init\.path: \S+ is of step 2, and this run began with step 1 of \S+first "):
        resumed(second, init={"path": str(first / "checkpoints" / "step-00000002")})
    manifest = taken / "manifest.json"
    before = manifest.read_text()
    manifest.write_text(before + "\n")
    with pytest.raises(ConfigError, match=r"init: \S+step-00000001 holds other weights than this run began with; "):
        resumed(second)
    manifest.write_text(before)
    shutil.rmtree(taken)
    with pytest.raises(ConfigError, match=r"init: .* no checkpoint of step 1; steps: 2; this run began with step 1"):
        resumed(second)
    assert (second / "run.yaml").exists()


def test_a_run_of_an_older_version_says_which_step_it_begins_with(first: Path, tmp_path: Path) -> None:
    second = killed(first, tmp_path / "second")
    (second / "begun.json").unlink()
    said = resumed(second)
    assert f"warning: init: no begun.json tells which step of {first} this run began with: it begins again with " in (
        "".join(said)
    )
    assert pinned(second)["step"] == 2


def test_the_first_run_may_be_moved_before_there_is_a_checkpoint(first: Path, tmp_path: Path) -> None:
    second, moved = killed(first, tmp_path / "second"), tmp_path / "moved"
    first.rename(moved)
    with pytest.raises(
        ConfigError, match=r"init: \S+first: no run is here .*say where that run is now \(init\.path=\.\.\.\)"
    ):
        resumed(second)
    with pytest.raises(ConfigError, match=r"init: .* has no checkpoint yet .* only the place may be another"):
        resumed(second, init={"path": str(moved), "optimizer": True})
    said = resumed(second, init={"path": str(moved)})
    assert any(line.endswith(f"of {moved / 'checkpoints' / 'step-00000001'}") for line in said)
    assert f"changed: init.path {first} -> {moved}" in said and pinned(second)["path"] == str(moved)
    assert f"path: {moved}" in (second / "run.yaml").read_text()
    with pytest.raises(ConfigError, match=r"init: the run in \S+ goes on with its own weights; leave it out"):
        resumed(second, init={"path": str(tmp_path)})


def test_what_else_is_noted_of_a_beginning_stays_and_a_damaged_note_is_told(first: Path) -> None:
    folder, taken = RunFolder(first), Begun("there", 3, "ab")
    folder.begun.write_text('{"branch": {"step": 2}}')
    assert read_begun(folder) is None
    write_begun(folder, taken)
    assert read_begun(folder) == taken and json.loads(folder.begun.read_text())["branch"] == {"step": 2}
    for text in ("{", '{"init": {"step": 3}}'):
        folder.begun.write_text(text)
        with pytest.raises(
            ConfigError, match=r"begun\.json: damaged \(.*\); put it back as it was, or start a new run"
        ):
            read_begun(folder)
