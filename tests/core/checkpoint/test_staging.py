"""Copies of a GPU's tensors, followed without a GPU; ``tests/core/train/test_gpu.py`` has their values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from kosmos.checkpoint import staging as module
from kosmos.checkpoint.saver import Saver
from kosmos.checkpoint.staging import ALIGNED, Staging
from kosmos.checkpoint.tensors import read_whole
from kosmos.runtime.parallel import Parallel
from kosmos.testing.fake_gpu import CUDA, FakeGpu, fake_gpu

pytestmark = pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch knows no CUDA")


def tensors() -> dict[str, Tensor]:
    """On the GPU but for one."""
    shapes = {"a": (3, 5), "b": (), "c": (0, 4), "d": (300, 7), "e": (11,), "f": (40, 40)}
    kinds = (torch.float32, torch.bfloat16, torch.int8, torch.bool)
    found = {
        f"model.{name}.{kind}": torch.zeros(shape, dtype=kind, device=CUDA)
        for name, shape in shapes.items()
        for kind in kinds
    }
    return {**found, "model.turned": torch.zeros(5, 9, device=CUDA).T, "model.here": torch.arange(6.0)}


def pinned_bytes(gpu: FakeGpu) -> int:
    return sum(slab.nbytes for slab in gpu.pinned.values())


def test_a_gpu_is_waited_for_once_a_checkpoint_and_what_was_pinned_is_used_again(tmp_path: Path) -> None:
    said: list[str] = []
    with fake_gpu() as gpu:
        given = tensors()
        saver = Saver(tmp_path, Parallel(), keep_last=2, report=said.append)
        for step in (1, 2):
            gpu.waits.clear()
            saver.save(step, given, {"step": step})
            assert [wait.split(" at ")[0] for wait in gpu.waits] == ["synchronize"]
            assert len(gpu.pinned) == 1
            saver.wait()
    for step in (1, 2):
        again = read_whole(tmp_path / f"step-0000000{step}" / "tensors")
        assert {n: (t.shape, t.dtype) for n, t in again.items()} == {n: (t.shape, t.dtype) for n, t in given.items()}
        assert again["model.here"].tolist() == [0, 1, 2, 3, 4, 5]
    assert said == []


@pytest.mark.parametrize("slab", [512, 4096, 2**30])
def test_copies_in_pinned_memory_stand_apart_and_fill_it(monkeypatch: pytest.MonkeyPatch, slab: int) -> None:
    monkeypatch.setattr(module, "SLAB_BYTES", slab)
    with fake_gpu() as gpu:
        given = tensors()
        copies = Staging().copies(given)
        assert list(copies) == list(given)
        for number, copy in enumerate(copies.values()):
            copy.fill_(number % 2 if copy.dtype == torch.bool else number)
        for number, (name, copy) in enumerate(copies.items()):
            assert copy.shape == given[name].shape and copy.is_contiguous()
            assert (copy == (number % 2 if copy.dtype == torch.bool else number)).all()
            if copy.numel() and name != "model.here":
                assert copy.is_pinned() and copy.data_ptr() % ALIGNED == 0
    rounded = sum(-(-t.nbytes // ALIGNED) * ALIGNED for t in given.values() if t.is_cuda)
    assert rounded <= pinned_bytes(gpu) <= 1.2 * rounded


def test_memory_that_cannot_be_pinned_is_told_of_once_and_copied_to_as_it_is(tmp_path: Path) -> None:
    said: list[str] = []
    with fake_gpu(most_pinned=1000) as gpu:
        saver = Saver(tmp_path, Parallel(), keep_last=2, report=said.append)
        for step in (1, 2):
            saver.save(step, tensors(), {"step": step})
            saver.wait()
        assert gpu.pinned == {}
    assert len(read_whole(tmp_path / "step-00000002" / "tensors")) == 26
    (line,) = said
    assert "rank 0: cannot pin memory for checkpoints" in line and "CUDA error: out of memory" in line


def test_what_could_be_pinned_is_used_where_the_rest_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLAB_BYTES", 4096)
    with fake_gpu(most_pinned=16_000) as gpu:
        staging = Staging()
        for problem in ("CUDA error: out of memory", None):
            copies = staging.copies(tensors())
            kept = sum(copy.is_pinned() for copy in copies.values() if copy.numel())
            assert 0 < kept < len(copies) and 0 < pinned_bytes(gpu) <= 16_000
            assert (staging.problem or "").partition(": ")[2] == (problem or "")


def test_memory_that_the_last_copies_did_not_need_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLAB_BYTES", 4096)
    emptied: list[int] = []
    with fake_gpu() as gpu:
        monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: emptied.append(len(gpu.pinned)))
        staging, given = Staging(), tensors()
        staging.copies(given)
        pinned = len(gpu.pinned)
        for few in ({"model.a.torch.float32": given["model.a.torch.float32"]}, given):
            staging.copies(few)
        assert emptied == [pinned]
        assert len(gpu.pinned) == 2 * pinned - 1  # one was kept
        staging.copies({}, keep=True)
        assert emptied == [pinned]


def test_copies_on_a_cpu_are_of_memory_as_it_is() -> None:
    given = {"model.a": torch.randn(5, 3).T, "model.b": torch.tensor(3)}
    with fake_gpu() as gpu:
        copies = Staging().copies(given)
    assert gpu.waits == [] and gpu.pinned == {}
    assert all(torch.equal(copies[name], tensor) for name, tensor in given.items())
    assert copies["model.a"].is_contiguous() and copies["model.b"].data_ptr() != given["model.b"].data_ptr()
