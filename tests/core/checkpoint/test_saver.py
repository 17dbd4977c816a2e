from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

from kosmos.checkpoint import folder as folders
from kosmos.checkpoint import saver as module
from kosmos.checkpoint import tensors as stored
from kosmos.checkpoint.folder import begin, commit, committed, load_newest, verify
from kosmos.checkpoint.saver import Saver
from kosmos.checkpoint.tensors import ALONE, expect_alone, read_into, read_whole
from kosmos.errors import CheckpointError, TrainingError
from kosmos.runtime.parallel import Parallel
from support.saving import save, saver


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


@pytest.fixture
def many_files(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """Tensors that fill five files of 1 KiB, written and hashed by three threads."""
    monkeypatch.setattr(stored, "FILE_BYTES", 1024)
    monkeypatch.setattr(module, "helpers_of_rank", lambda ranks: 3)
    large = {f"model.{n}.w": torch.randn(16, 16, dtype=torch.bfloat16) for n in range(8)}
    return {**large, "model.norm": torch.randn(7), "optimizer.model.0.w/step": torch.tensor(3.0)}


def save_these(folder: Path, tensors: dict[str, Tensor]) -> Path:
    one = saver(folder)
    one.save(1, tensors, {"step": 1})
    saved = one.wait()
    assert saved is not None
    return saved.folder


def test_a_large_checkpoint_is_several_hashed_files_and_comes_back_bit_for_bit(
    tmp_path: Path, many_files: dict[str, Tensor]
) -> None:
    folder = save_these(tmp_path, many_files)
    names = [f"shard-00001-model-0000{n}-of-00005.safetensors" for n in range(1, 6)]
    hashed = json.loads((folder / "manifest.json").read_text())["sha256"]
    assert sorted(hashed) == ["state.json", *(f"tensors/{name}" for name in names)]
    assert sorted(p.name for p in (folder / "tensors").iterdir()) == names
    again = read_whole(folder / "tensors")
    assert again.keys() == many_files.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in many_files.items())


def test_damage_in_any_of_several_files_is_found_and_named(tmp_path: Path, many_files: dict[str, Tensor]) -> None:
    folder = save_these(tmp_path, many_files)
    for file in sorted((folder / "tensors").iterdir()):
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert verify(folder) == f"tensors/{file.name} does not match its hash"
        file.write_bytes(content)
    assert verify(folder) is None


def test_one_of_several_files_that_cannot_be_written_fails_the_checkpoint(
    tmp_path: Path, many_files: dict[str, Tensor]
) -> None:
    with small_files(), pytest.raises(TrainingError, match="cannot write the checkpoint of step 1"):
        save_these(tmp_path, many_files)
    assert not list(tmp_path.iterdir())


def test_a_small_checkpoint_is_one_file(tmp_path: Path) -> None:
    folder = save_these(tmp_path, {f"model.{n}.w": torch.zeros(16) for n in range(100)})
    assert [p.name for p in (folder / "tensors").iterdir()] == ["shard-00001-model-00001-of-00001.safetensors"]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_what_pytorch_wrote_as_one_file_is_read(tmp_path: Path, many_files: dict[str, Tensor]) -> None:
    with_pytorch = HuggingFaceStorageWriter(str(tmp_path), save_distributed=True)
    save_distributed(dict(many_files), storage_writer=with_pytorch, no_dist=True)
    (file,) = tmp_path.iterdir()
    assert file.name == "shard-00001-model-00001-of-00001.safetensors"
    again = read_whole(tmp_path)
    assert all(torch.equal(again[name], tensor) for name, tensor in many_files.items())


def test_whoever_may_read_the_folder_may_read_the_tensors(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    (tensors,) = (folder / "tensors").iterdir()
    assert tensors.stat().st_mode == (folder / "state.json").stat().st_mode


def test_a_process_that_ends_without_waiting_still_commits_what_it_ordered(tmp_path: Path) -> None:
    program = """
import sys, torch
from pathlib import Path
from kosmos.checkpoint import saver, tensors
from kosmos.runtime.parallel import Parallel

saver.helpers_of_rank, tensors.FILE_BYTES = lambda ranks: 3, 1
weights = {f"model.{n}.w": torch.zeros(1_000_000) for n in range(10)}
saver.Saver(Path(sys.argv[1]), Parallel(), keep_last=1).save(1, weights, {"step": 1})
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=120)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    assert verify(tmp_path / "step-00000001") is None


def test_reading_what_is_not_there_or_of_another_shape_is_one_line(tmp_path: Path) -> None:
    tensors = save(tmp_path, 1) / "tensors"
    with pytest.raises(CheckpointError, match=r"model\.v is missing, the run has \(8,\)"):
        read_into(tensors, {"model.v": torch.empty(8)}, alone=True)
    with pytest.raises(CheckpointError, match=r"model\.w is \(8,\), the run has \(9,\)"):
        read_into(tensors, {"model.w": torch.empty(9)}, alone=True)


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


def test_a_checkpoint_whose_folder_goes_as_it_is_written_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, commit = tmp_path / "checkpoints", module.folders.commit
    folder.mkdir()

    def gone(*arguments: Any, **more: Any) -> Any:
        shutil.rmtree(folder)
        return commit(*arguments, **more)

    monkeypatch.setattr(module.folders, "commit", gone)
    with pytest.raises(TrainingError, match=r"cannot write the checkpoint of step 2 .* cannot be looked at \(No such"):
        save(folder, 2)


def test_a_failed_save_is_reported_at_the_next_and_the_run_goes_on(tmp_path: Path) -> None:
    lines: list[str] = []
    noted: list[tuple[int, str | None]] = []
    one = saver(tmp_path, report=lines.append, noted=lambda *ended: noted.append(ended))
    with small_files():
        one.save(1, {"model.w": torch.zeros(8)}, {"step": 1})
        assert one.thread is not None
        one.thread.join()
    one.save(2, {"model.w": torch.ones(8)}, {"step": 2})
    one.wait()
    assert [c.name for c in committed(tmp_path)] == ["step-00000002"]
    assert len(lines) == 1 and "checkpoint of step 1" in lines[0] and lines[0].endswith("the run goes on")
    assert [step for step, _ in noted] == [1, 2]
    assert "File too large" in str(noted[0][1]) and noted[1][1] is None


def test_one_that_is_waited_for_says_that_it_gets_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.005)
    moves: list[int] = []
    one = saver(tmp_path, moves=lambda: moves.append(one.stage))
    one.save(1, {"model.x": torch.zeros(16 << 20)}, {"step": 1})
    assert one.wait() is not None
    assert len(moves) >= 2 and moves == sorted(moves)


def test_what_is_written_can_be_counted_while_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partial = folders.begin(tmp_path, 1)
    (partial / "tensors" / "a").write_bytes(bytes(10))
    assert folders.bytes_written(tmp_path) == 10
    scan = os.scandir

    def late(folder: Path) -> Any:  # the folder is renamed as it is about to be looked into
        if Path(folder) == partial:
            partial.rename(tmp_path / "step-00000001")
        return scan(folder)

    monkeypatch.setattr(os, "scandir", late)
    assert folders.bytes_written(tmp_path) == 0


def test_nothing_but_tensors_and_json_is_written(tmp_path: Path) -> None:
    files = [p for p in save(tmp_path, 3).rglob("*") if p.is_file()]
    assert {p.suffix for p in files} == {".safetensors", ".json"}
    for file in files:
        head = file.read_bytes()
        json.loads(head if file.suffix == ".json" else head[8 : 8 + int.from_bytes(head[:8], "little")])


def test_files_and_the_folders_that_name_them_are_on_the_disk_before_the_rename(tmp_path, monkeypatch):
    synced, real = [], folders.sync
    monkeypatch.setattr(folders, "sync", lambda path: synced.append((path.name, path.exists())) or real(path))
    partial = begin(tmp_path, 5)
    commit(partial, 5, {"step": 5}, {})
    names = [name for name, _ in synced]
    assert names == ["state.json", "manifest.json", "tensors", partial.name, tmp_path.name]


def test_a_checkpoint_that_the_disk_changed_is_not_taken_for_whole(tmp_path, monkeypatch):
    real = folders.hash_and_sync

    def damaged(partial, names, **given):
        hashes = real(partial, names, **given)
        next((partial / "tensors").iterdir()).write_bytes(b"x")
        return hashes

    saver = Saver(tmp_path, Parallel(), keep_last=1)
    saver.save(1, {"model.w": torch.ones(3)}, {"step": 1})
    saver.wait()
    monkeypatch.setattr(folders, "hash_and_sync", damaged)
    for step in (2, 1):  # 1 is there whole, and is not replaced by what is not
        saver.save(step, {"model.w": torch.ones(3)}, {"step": step})
        with pytest.raises(TrainingError, match=f"{step:08d} was damaged as it was written"):
            saver.wait()
        assert folders.load_newest(tmp_path).state["step"] == 1


def test_what_a_killed_run_left_is_no_obstacle(tmp_path):
    begin(tmp_path, 5)
    other = begin(tmp_path, 4)
    assert [p.name for p in tmp_path.iterdir()] == [other.name]
    begin(tmp_path, 4)


def test_shards_that_do_not_cover_a_tensor_are_refused(tmp_path):
    about = {
        "DCP_SHARDING_INFO": json.dumps({"model.w": {"saved_offsets": [4, 0]}}),
        "DCP_VERSION": "1.0",
        "format": "pt",
    }
    save_file({"model.w": torch.ones(4, 2)}, tmp_path / "shard-00001-model-00001-of-00001.safetensors", about)
    with pytest.raises(CheckpointError, match=r"model\.w: shards of 8 values for shape \(8, 2\)"):
        read_whole(tmp_path)


def test_a_shard_of_another_rank_that_is_not_seen_makes_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "SEEN_S", 0.2)
    real = Saver._write
    monkeypatch.setattr(Saver, "_write", lambda *given: [*real(*given), "shard-00002-model-00001-of-00001.safetensors"])
    saver = Saver(tmp_path, Parallel(), keep_last=1)
    saver.save(1, {"model.w": torch.ones(3)}, {"step": 1})
    with pytest.raises(TrainingError, match=r"shard-00002\S+ was written by another rank and is not seen here"):
        saver.wait()
    assert committed(tmp_path) == []


def test_a_shard_of_another_rank_that_is_seen_late_is_waited_for(tmp_path, monkeypatch):
    partial = begin(tmp_path, 5)
    late = partial / "tensors" / "shard-2"
    monkeypatch.setattr("time.sleep", lambda seconds: late.write_bytes(b"late"))
    assert list(folders.hash_and_sync(partial, [late.name], share=0, of=2)) == ["tensors/shard-2"]


def test_a_save_shows_no_warning_again_that_was_shown():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            expect_alone()
            warnings.warn("once", UserWarning, stacklevel=1)
            warnings.warn(f"{ALONE}, assuming", UserWarning, stacklevel=1)
    assert [str(one.message) for one in seen] == ["once"]
