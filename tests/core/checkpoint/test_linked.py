"""What is frozen is written twice and linked from then on; every checkpoint is whole by itself all the same."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kosmos.checkpoint import saver as module
from kosmos.checkpoint.folder import bytes_written, committed, load_newest, verify
from kosmos.checkpoint.frozen import marks
from kosmos.checkpoint.saver import Saver
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.errors import TrainingError
from kosmos.runtime.parallel import Parallel
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry

FROZEN = {"model.base", "model.scale"}
FILE = "tensors/frozen-00001-model-00001-of-00001.safetensors"


class Training:
    """Checkpoints of steps 1, 2, ..., whose ``model.w`` is full of the step."""

    def __init__(self, folder: Path, keep_last: int = 9, **more: int) -> None:
        self.said: list[str] = []
        self.saver = Saver(folder, Parallel(), keep_last=keep_last, report=self.said.append, **more)
        self.folder, self.base = folder, torch.arange(600.0).view(20, 30)

    def tensors(self, step: int) -> dict[str, Tensor]:
        return {"model.w": torch.full((8,), float(step)), "model.base": self.base, "model.scale": torch.tensor(3)}

    def save(self, *steps: int) -> None:
        for step in steps:
            self.saver.save(step, self.tensors(step), {"step": step}, frozen=FROZEN)
            assert self.saver.wait() is not None

    def file(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}" / FILE

    def inodes(self, *steps: int) -> list[int]:
        return [self.file(step).stat().st_ino for step in steps]

    def assert_whole(self, *steps: int) -> None:
        for step in steps:
            checkpoint = self.folder / f"step-{step:08d}"
            assert verify(checkpoint) is None
            found, expected = read_whole(checkpoint / "tensors"), self.tensors(step)
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


def rot(file: Path) -> None:
    """Damage in place, as a disk does it: every link has it."""
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def test_two_copies_are_written_and_linked_in_turn(training: Training) -> None:
    training.save(1, 2, 3, 4, 5)
    one, other = training.inodes(1, 2)
    assert one != other
    assert training.inodes(3, 4, 5) == [one, other, one]
    assert [training.file(step).stat().st_nlink for step in (1, 2)] == [3, 2]
    training.assert_whole(1, 2, 3, 4, 5)


@pytest.mark.parametrize("kept", [1, 3, 4])
def test_each_is_whole_once_the_others_are_deleted(training: Training, kept: int) -> None:
    training.save(1, 2, 3, 4)
    for checkpoint in committed(training.folder):
        if not checkpoint.name.endswith(str(kept)):
            shutil.rmtree(checkpoint)
    training.assert_whole(kept)
    assert load_newest(training.folder).state == {"step": kept}


def test_damage_in_what_is_frozen_leaves_the_other_of_the_newest_two(tmp_path: Path) -> None:
    training = Training(tmp_path, keep_last=2)
    training.save(1, 2, 3, 4, 5)
    assert [c.name[-1] for c in committed(tmp_path)] == ["5", "4"]
    rot(training.file(5))
    assert load_newest(tmp_path).state == {"step": 4}
    training.assert_whole(4)


def test_a_linked_file_that_has_rotted_is_replaced_in_the_same_checkpoint(training: Training) -> None:
    training.save(1, 2)
    rot(training.file(1))
    training.save(3, 4, 5)
    (line,) = training.said
    assert line == f"warning: step-00000001: {FILE} changed on the disk; the checkpoint of step 3 has it as it was"
    training.assert_whole(2, 3, 4, 5)
    assert len({*training.inodes(1, 2, 3)}) == 3
    assert training.inodes(4, 5) == training.inodes(2, 3)


def test_where_both_copies_have_rotted_the_next_checkpoints_are_written_in_full(training: Training) -> None:
    training.save(1, 2)
    rot(training.file(1))
    rot(training.file(2))
    with pytest.raises(TrainingError, match=rf"step 3 \(step-00000003 was damaged .*{FILE} does not match its hash"):
        training.save(3)
    training.save(4, 5, 6)
    training.assert_whole(4, 5, 6)
    assert len({*training.inodes(1, 2, 4, 5)}) == 4
    assert training.inodes(6) == training.inodes(4)


def test_where_links_cannot_be_made_all_is_written_in_full(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refused)
    training.save(1, 2, 3, 4)
    assert len({*training.inodes(1, 2, 3, 4)}) == 4 and training.said == []
    training.assert_whole(1, 2, 3, 4)


def test_a_run_that_keeps_one_writes_it_in_full(tmp_path: Path) -> None:
    training = Training(tmp_path, keep_last=1)
    for step in (1, 2, 3, 4):
        training.save(step)
        assert training.file(step).stat().st_nlink == 1
    training.assert_whole(4)


def test_those_that_are_kept_when_others_are_not_share_no_file(tmp_path: Path) -> None:
    training = Training(tmp_path, keep_every=3)
    training.save(*range(1, 8))
    assert len({*training.inodes(3, 6)}) == len({*training.inodes(6, 7)}) == 2
    assert training.inodes(5) == training.inodes(3)
    training.assert_whole(*range(1, 8))


def test_one_that_is_taken_again_has_no_file_of_the_one_before_it(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.save(1, 2, 2, 3)
    assert len({*training.inodes(1, 2, 3)}) == 3
    training.saver.went_on_from(3)  # the guard went back to it
    training.save(4, 5, 6)
    assert len({*training.inodes(3, 4, 5)}) == 3 and training.inodes(6) == training.inodes(4)


@pytest.mark.parametrize("after", [1, 3])
def test_what_changes_though_it_is_called_frozen_is_saved_as_it_is(training: Training, after: int) -> None:
    training.save(*range(1, after + 1))
    training.assert_whole(after)
    training.base.data.mul_(1.5)  # as averages of weights are kept; PyTorch counts no write of it
    training.save(after + 1, after + 2, after + 3)
    training.assert_whole(after + 1, after + 2, after + 3)
    assert len({*training.inodes(after, after + 1, after + 2)}) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex128])
def test_a_change_of_any_value_is_noticed(dtype: torch.dtype) -> None:
    whole = torch.ones(64, dtype=dtype)
    for part in (whole[:37], whole[3:40], whole.view(8, 8).T, whole[5], whole[:0]):
        before = marks({"a": part})
        assert marks({"a": part}) == before
        if part.numel():
            part.data.view(-1)[-1:].zero_() if part.is_contiguous() else part.data[-1, -1].zero_()
            assert marks({"a": part}) != before
            whole.data.fill_(1)


def test_what_is_linked_is_neither_copied_nor_counted(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[set[str]] = []
    real = training.saver.staging.copies
    monkeypatch.setattr(training.saver.staging, "copies", lambda given, **more: copied.append({*given}) or real(given))
    training.save(1, 2)
    written: list[int] = []
    commit = module.folders.commit

    def failed(*given: object, **more: object) -> None:
        written.append(bytes_written(training.folder))
        raise OSError("the disk is full")

    monkeypatch.setattr(module.folders, "commit", failed)
    with pytest.raises(TrainingError, match="about 32 bytes are needed"):
        training.save(3)
    assert written[0] < 600
    monkeypatch.setattr(module.folders, "commit", commit)
    training.save(4)
    assert copied == [FROZEN | {"model.w"}] * 2 + [{"model.w"}] * 2
    assert training.inodes(4) == training.inodes(1)


def test_a_run_whose_encoder_is_frozen_goes_on_exactly_from_a_linked_checkpoint(tmp_path: Path) -> None:
    over = {"streams": {"ticks": {"freeze": True}}, "checkpoint": {"every_steps": 1, "keep_last": 9}}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train_model(small_run(whole, **over), registry=ticks_registry())
    shutil.copytree(whole, cut)
    for step in (5, 6):  # as killed after step 4
        shutil.rmtree(cut / "checkpoints" / f"step-{step:08d}")
    resume_run(cut, {}, registry=ticks_registry())
    rows = [rows_of(run / "metrics.jsonl") for run in (whole, cut)]
    assert [row["loss"] for row in rows[1]] == [row["loss"] for row in rows[0]]
    weights = [read_whole(load_newest(run / "checkpoints").tensors, MODEL) for run in (whole, cut)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    links = [(c / FILE).stat().st_nlink for c in committed(whole / "checkpoints")]
    assert links == [3] * 6
    assert [(c / FILE).stat().st_nlink for c in committed(cut / "checkpoints")] == [1] * 6
