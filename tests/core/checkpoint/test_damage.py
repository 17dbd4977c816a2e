"""Damaged checkpoints are noticed and passed over; made-up ones run nothing and are refused in one line."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kosmos.checkpoint.folder import load_newest, verify
from kosmos.errors import KosmosError
from kosmos.train.run import resume_run, train_model
from kosmos.train.saved import load_run
from support.payloads import PAYLOADS, STATES, Payload
from support.runs import small_run, ticks_registry

PAGE = 4096


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps with a checkpoint of each."""
    output = tmp_path_factory.mktemp("trained") / "run"
    over = {"train": {"steps": 2, "optimizer": "adamw"}, "checkpoint": {"every_steps": 1}}
    train_model(small_run(output, **over), registry=ticks_registry())
    return output


def flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def zero_page(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(0, len(content), PAGE)
    page = content[begin : begin + PAGE]
    return content[:begin] + bytes(len(page)) + content[begin + PAGE :]


def truncate(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def damages(files: list[Path], count: int) -> Iterator[tuple[str, Path, bytes]]:
    """``count`` seeded damages that change something; files of all sizes get their share."""
    chance = random.Random(0)
    made = 0
    while made < count:
        kind, file = chance.choice((flip, zero_page, truncate)), chance.choice(files)
        content = file.read_bytes()
        changed = kind(content, chance)
        if changed != content:
            made += 1
            yield f"{made}: {kind.__name__} of {file.name}", file, changed


def test_of_a_thousand_damages_each_is_noticed_and_the_checkpoint_before_is_taken(
    tmp_path: Path, trained: Path
) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(trained / "checkpoints", folder)
    newest, before = folder / "step-00000002", folder / "step-00000001"
    files = sorted(p for p in newest.rglob("*") if p.is_file())
    assert len(files) == 3
    for what, file, changed in damages(files, 1000):
        content = file.read_bytes()
        file.write_bytes(changed)
        loaded = load_newest(folder)
        assert loaded is not None and loaded.folder == before and loaded.state["step"] == 1, what
        assert len(loaded.skipped) == 1 and loaded.skipped[0].startswith("step-00000002: "), what
        file.write_bytes(content)
    assert verify(newest) is None


@pytest.mark.parametrize("kind", ["a file is gone", "a file more", "a folder more", "nothing but the folder", "a file"])
def test_what_lacks_a_file_or_has_one_more_is_passed_over(tmp_path: Path, trained: Path, kind: str) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(trained / "checkpoints", folder)
    newest = folder / "step-00000002"
    if kind == "a file is gone":
        next((newest / "tensors").iterdir()).unlink()
    elif kind == "a file more":
        (newest / "tensors" / "notes.txt").touch()
    elif kind == "a folder more":
        (newest / "more").mkdir()
    else:
        shutil.rmtree(newest)
        newest.touch() if kind == "a file" else newest.mkdir()
    loaded = load_newest(folder)
    assert loaded is not None and loaded.folder.name == "step-00000001"


def test_there_are_payloads_enough() -> None:
    assert len(PAYLOADS) >= 30
    assert len({payload.__name__ for payload in PAYLOADS}) == len(PAYLOADS)


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.__name__)
def test_a_made_up_checkpoint_runs_nothing_and_is_refused_in_one_line(
    tmp_path: Path, trained: Path, payload: Payload, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, canary = tmp_path / "run", tmp_path / "canary"
    shutil.copytree(trained, output)
    shutil.rmtree(output / "checkpoints" / "step-00000001")  # nothing to fall back to
    monkeypatch.chdir(tmp_path)
    payload(output / "checkpoints" / "step-00000002", canary)
    for use in (lambda: load_run(output, registry=ticks_registry()), lambda: resume(output)):
        with pytest.raises(KosmosError) as caught:
            use()
        assert 20 < len(caught.value.line()) < 1000
    assert not canary.exists()


@pytest.mark.parametrize("payload", STATES, ids=lambda payload: payload.__name__)
def test_a_state_that_no_run_saves_is_one_line(tmp_path: Path, trained: Path, payload: Payload) -> None:
    shutil.copytree(trained, tmp_path / "run")
    payload(tmp_path / "run" / "checkpoints" / "step-00000002", tmp_path / "canary")
    with pytest.raises(KosmosError) as caught:
        resume(tmp_path / "run")
    assert "step-00000002" in caught.value.line() or "optimizer state of no.such" in caught.value.line()


def resume(output: Path) -> None:
    resume_run(output, {"train": {"steps": 3}}, registry=ticks_registry())


def test_the_run_that_the_payloads_are_made_of_loads(tmp_path: Path, trained: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    assert load_run(tmp_path / "run", registry=ticks_registry()).step == 2
    resume(tmp_path / "run")
