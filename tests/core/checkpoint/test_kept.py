"""Which checkpoints are kept, and what takes the place of which."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kosmos.checkpoint import folder as folders
from kosmos.checkpoint.folder import committed, load_newest, step_of, verify
from kosmos.checkpoint.saver import Saver
from kosmos.runtime.parallel import Parallel
from kosmos.train.run import train_model
from support.runs import small_run, ticks_registry
from support.saving import save, saver


@pytest.mark.parametrize("keep_last", [1, 2])
def test_pruning_after_a_fallback_never_deletes_what_was_just_saved(tmp_path: Path, keep_last: int) -> None:
    save(tmp_path, 200)
    (damaged,) = (save(tmp_path, 400) / "tensors").iterdir()
    damaged.write_bytes(damaged.read_bytes()[:-1])
    save(tmp_path, 300, keep_last)
    found = load_newest(tmp_path)
    assert found is not None and found.folder.name == "step-00000300"
    assert len(committed(tmp_path)) == keep_last


def test_folders_that_only_have_the_name_of_a_checkpoint_are_never_deleted(tmp_path: Path) -> None:
    mine = [f"{name}/w.bin" for name in ("step-00000005", "step-00000500", ".partial-mine", ".partial-step-7")]
    for file in mine:
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text("precious")
    (tmp_path / ".partial-notes").write_text("precious")
    for step in (10, 20, 30):
        save(tmp_path, step, 2)
    assert all((tmp_path / file).read_text() == "precious" for file in (*mine, ".partial-notes"))
    saved = [step_of(c) for c in committed(tmp_path) if verify(c) is None]
    assert saved == [30, 20]  # the others take the place of none


def test_a_damaged_checkpoint_takes_the_place_of_no_whole_one(tmp_path: Path) -> None:
    save(tmp_path, 200)
    (damaged,) = (save(tmp_path, 400) / "tensors").iterdir()
    damaged.write_bytes(b"")
    saver = Saver(tmp_path, Parallel(), keep_last=2, keep_every=400)
    saver.went_on_from(200)
    for step, kept in ((500, [500, 200]), (600, [600, 500])):
        saver.save(step, {"model.w": torch.ones(8)}, {"step": step})
        saver.wait()
        assert [step_of(c) for c in committed(tmp_path)] == kept


def test_a_damaged_checkpoint_is_replaced_when_its_steps_are_taken_again(tmp_path: Path) -> None:
    save(tmp_path, 200)
    (damaged,) = (save(tmp_path, 400) / "tensors").iterdir()
    damaged.write_bytes(b"")
    assert verify(save(tmp_path, 400)) is None
    assert [c.name for c in committed(tmp_path)] == ["step-00000400", "step-00000200"]


STOPPED_AT_EACH_STEP = """
import json, os, shutil, sys
from pathlib import Path
from kosmos.checkpoint import folder as folders

STEPS = ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "open", "os.mkdir", "os.scandir")

def save(folder, by):
    partial = folders.begin(folder, 7)
    (partial / "tensors" / "x.safetensors").write_bytes(by.encode())
    names = [file.name for file in (partial / "tensors").iterdir()]
    folders.commit(partial, 7, {"step": 7, "by": by}, folders.hash_and_sync(partial, names))

def stopped(folder, number):  # before the number-th of them, with no word to anybody
    steps = iter(range(number))
    sys.addaudithook(lambda event, given: event in STEPS and next(steps, None) is None and os._exit(9))
    save(folder, "new")
    os._exit(0)

if sys.argv[2] == "two renames":
    folders.exchange = lambda one, other: False
seen, status, number = [], 9, 0
while status:
    folder = Path(sys.argv[1]) / str(number)
    folder.mkdir()
    save(folder, "old")
    if (child := os.fork()) == 0:
        stopped(folder, number)
    status, number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), number + 1
    found = folders.load_newest(folder)
    partial = folders.begin(folder, 8)
    again = folders.load_newest(folder)
    seen.append([found and found.state["by"], again and again.state["by"], sorted(p.name for p in folder.iterdir())])
print(json.dumps(seen))
"""


@pytest.mark.parametrize("way", ["one exchange", "two renames"])
def test_a_checkpoint_that_is_replaced_is_there_whole_wherever_the_process_is_killed(tmp_path: Path, way: str) -> None:
    if way == "one exchange":
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        if not folders.exchange(tmp_path / "a", tmp_path / "b"):
            pytest.skip("this disk cannot exchange two folders")
    program = [sys.executable, "-c", STOPPED_AT_EACH_STEP, str(tmp_path), way]
    told = subprocess.run(program, check=True, timeout=120, capture_output=True, text=True).stdout
    seen = json.loads(told)
    assert len(seen) > 15
    assert {tuple(names) for _, _, names in seen} == {(".partial-step-00000008", "step-00000007")}
    first, then = [by for by, _, _ in seen], [by for _, by, _ in seen]
    assert first == then == sorted(first, reverse=True)  # the old one, and from some step on the new one
    assert set(first) == {"old", "new"}


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_somebody_put_in_the_place_of_a_checkpoint_is_replaced(tmp_path: Path, kind: str) -> None:
    there = tmp_path / "checkpoints" / "step-00000400"
    there.parent.mkdir()
    if kind == "link":
        there.symlink_to(save(tmp_path / "elsewhere", 400))
    else:
        there.write_text("step 400")
    for _ in range(2):
        assert verify(save(there.parent, 400)) is None
    assert [p.name for p in there.parent.iterdir()] == [there.name]


def test_checkpoints_of_every_so_many_steps_are_kept_besides_the_last(tmp_path: Path) -> None:
    one = saver(tmp_path, keep_last=1, keep_every=20)
    for step in range(10, 60, 10):
        one.save(step, {"model.w": torch.zeros(2)}, {"step": step})
    one.wait()
    assert [c.name[-2:] for c in committed(tmp_path)] == ["50", "40", "20"]


def test_a_run_saves_the_steps_that_it_is_to_keep_though_they_are_none_of_every_steps(tmp_path: Path) -> None:
    kept = {"every_steps": 4, "keep_every": 5, "keep_last": 1}
    train_model(small_run(tmp_path / "run", train={"steps": 11}, checkpoint=kept), registry=ticks_registry())
    assert [step_of(c) for c in committed(tmp_path / "run" / "checkpoints")] == [11, 10, 5]
