from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kosmos.checkpoint import saver as module
from kosmos.checkpoint.folder import committed, load_newest, verify
from kosmos.checkpoint.saver import Saver
from kosmos.checkpoint.tensors import read_into, read_whole
from kosmos.errors import CheckpointError, TrainingError
from kosmos.runtime.parallel import Parallel


def saver(folder: Path, keep_last: int = 2, **more: object) -> Saver:
    return Saver(folder, Parallel(), keep_last=keep_last, **more)  # type: ignore[arg-type]


def save(folder: Path, step: int, keep_last: int = 2) -> Path:
    one = saver(folder, keep_last)
    one.save(step, {"model.w": torch.full((8,), float(step))}, {"step": step})
    saved = one.wait()
    assert saved is not None
    return saved.folder


def test_what_is_saved_is_what_was_there_when_it_was_ordered(tmp_path: Path) -> None:
    weights = torch.randn(300, 400)
    ordered = weights.clone()
    one = saver(tmp_path)
    one.save(1, {"model.w": weights}, {"step": 1})
    weights.zero_()  # training goes on
    one.wait()
    assert torch.equal(read_whole(tmp_path / "step-00000001" / "tensors")["model.w"], ordered)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4)])
def test_every_kind_of_tensor_comes_back_bit_for_bit(
    tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    tensor: Tensor = (torch.randn(shape) * 100).to(dtype)
    one = saver(tmp_path)
    one.save(1, {"optimizer.a.b/key": tensor}, {"step": 1})
    one.wait()
    again = torch.empty_like(tensor)
    read_into(tmp_path / "step-00000001" / "tensors", {"optimizer.a.b/key": again}, alone=True)
    assert again.dtype == dtype and torch.equal(again, tensor)


def test_reading_what_is_not_there_or_of_another_shape_is_one_line(tmp_path: Path) -> None:
    tensors = save(tmp_path, 1) / "tensors"
    with pytest.raises(CheckpointError, match=r"model\.v is missing, the run has \(8,\)"):
        read_into(tensors, {"model.v": torch.empty(8)}, alone=True)
    with pytest.raises(CheckpointError, match=r"model\.w is \(8,\), the run has \(9,\)"):
        read_into(tensors, {"model.w": torch.empty(9)}, alone=True)


@pytest.mark.parametrize("keep_last", [1, 2])
def test_pruning_after_a_fallback_never_deletes_what_was_just_saved(tmp_path: Path, keep_last: int) -> None:
    save(tmp_path, 200)
    (damaged,) = (save(tmp_path, 400) / "tensors").iterdir()
    damaged.write_bytes(damaged.read_bytes()[:-1])
    save(tmp_path, 300, keep_last)
    found = load_newest(tmp_path)
    assert found is not None and found.folder.name == "step-00000300"
    assert len(committed(tmp_path)) == keep_last


def test_a_damaged_checkpoint_is_replaced_when_its_steps_are_taken_again(tmp_path: Path) -> None:
    save(tmp_path, 200)
    (damaged,) = (save(tmp_path, 400) / "tensors").iterdir()
    damaged.write_bytes(b"")
    assert verify(save(tmp_path, 400)) is None
    assert [c.name for c in committed(tmp_path)] == ["step-00000400", "step-00000200"]


def test_checkpoints_of_every_so_many_steps_are_kept_besides_the_last(tmp_path: Path) -> None:
    one = saver(tmp_path, keep_last=1, keep_every=20)
    for step in range(10, 60, 10):
        one.save(step, {"model.w": torch.zeros(2)}, {"step": step})
    one.wait()
    assert [c.name[-2:] for c in committed(tmp_path)] == ["50", "40", "20"]


@contextmanager
def small_files() -> Iterator[None]:
    """No file may grow past 16 bytes: pytest's own neither, so not a moment longer than the body."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_checkpoint_that_cannot_be_written_is_one_line_and_leaves_the_older_whole(tmp_path: Path) -> None:
    save(tmp_path, 1)
    line = r"cannot write the checkpoint of step 2 .* 32 bytes are needed and [\d,]+ "
    with small_files(), pytest.raises(TrainingError, match=line):
        save(tmp_path, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    found = load_newest(tmp_path)
    assert found is not None and found.state == {"step": 1}


def test_a_failed_save_is_reported_at_the_next_and_the_run_goes_on(tmp_path: Path) -> None:
    lines: list[str] = []
    one = saver(tmp_path, report=lines.append)
    with small_files():
        one.save(1, {"model.w": torch.zeros(8)}, {"step": 1})
        assert one.thread is not None
        one.thread.join()
    one.save(2, {"model.w": torch.ones(8)}, {"step": 2})
    one.wait()
    assert [c.name for c in committed(tmp_path)] == ["step-00000002"]
    assert len(lines) == 1 and "checkpoint of step 1" in lines[0] and lines[0].endswith("the run goes on")


def test_one_that_is_waited_for_says_that_it_gets_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.005)
    moves: list[int] = []
    one = saver(tmp_path, moves=lambda: moves.append(one.stage))
    one.save(1, {"model.x": torch.zeros(16 << 20)}, {"step": 1})
    assert one.wait() is not None
    assert len(moves) >= 2 and moves == sorted(moves)


def test_nothing_but_tensors_and_json_is_written(tmp_path: Path) -> None:
    files = [p for p in save(tmp_path, 3).rglob("*") if p.is_file()]
    assert {p.suffix for p in files} == {".safetensors", ".json"}
    for file in files:
        head = file.read_bytes()
        json.loads(head if file.suffix == ".json" else head[8 : 8 + int.from_bytes(head[:8], "little")])
