"""Which documents the steps of a run took, found again behind it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from kosmos.checkpoint.folder import committed, step_of
from kosmos.cli import main
from kosmos.compose import compose, make_feed
from kosmos.config import RunConfig
from kosmos.data.lane import Feed
from kosmos.data.mixture import Cursor
from kosmos.run_sources import open_sources
from kosmos.train.output import RunFolder
from kosmos.train.replay import TakenStep, last_step, steps_taken
from kosmos.train.run import resume_run, train_model
from support.command import SMALL
from support.runs import rows_of, small_run, ticks_registry


def feed_of(config: RunConfig) -> Feed:
    registry = ticks_registry()
    return make_feed(compose(config, registry), open_sources(config, registry, "train"))


def origins(steps: list[TakenStep]) -> list[list[str]]:
    return [[document.origin for document in step.documents] for step in steps]


def taken(run: Path, config: RunConfig, first: int, last: int) -> list[TakenStep]:
    return list(steps_taken(RunFolder(run), feed_of(config), first, last))


def test_they_are_those_that_were_trained_on_also_where_the_run_was_resumed(tmp_path: Path) -> None:
    """The encoder of the run writes down what it is given."""
    run, ledger = tmp_path / "run", tmp_path / "ledger"
    config = small_run(
        run, train={"steps": 6}, checkpoint={"every_steps": 5},
        data={"lanes": 2, "sources": [{"path": "ticks", "options": {"size": 40}}]},
        streams={"ticks": {"encoder": {"name": "ticks", "ledger": str(ledger)}}},
    )  # fmt: skip
    train_model(config, registry=ticks_registry())
    resume_run(run, {"train": {"steps": 30}}, registry=ticks_registry())
    assert last_step(RunFolder(run)) == 30
    whole = taken(run, config, 1, 30)
    assert [step.step for step in whole] == list(range(1, 31))
    rows = [row["documents"] for row in rows_of(ledger)]
    assert origins(whole) == [rows[i] + rows[i + 1] for i in range(0, 60, 2)]
    assert [{document.lane for document in step.documents} for step in whole] == [{0, 1}] * 30
    assert {step.other for step in whole} == {""}
    assert taken(run, config, 28, 29) == whole[27:29]

    times = Counter(origin for step in origins(whole) for origin in step)
    assert len(times) == 40
    assert max(times.values()) - min(times.values()) <= 2  # of each lane some documents wait

    damaged = next(checkpoint for checkpoint in committed(run / "checkpoints") if step_of(checkpoint) == 25)
    (damaged / "state.json").write_text("{}")
    assert taken(run, config, 28, 29) == whole[27:29]
    shutil.rmtree(run / "checkpoints")
    assert taken(run, config, 28, 29) == whole[27:29]
    moved: list[tuple[int, int]] = []
    list(steps_taken(RunFolder(run), feed_of(config), 28, 29, moved=lambda *told: moved.append(told)))
    assert moved == [(1, 29)] * 29


def test_weights_of_a_run_that_an_older_version_began_are_held_as_it_held_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [{"path": "ticks", "name": name, "weight": weight} for name, weight in (("many", 30), ("few", 1))]
    config = small_run(tmp_path / "run", train={"steps": 16}, data={"sources": sources, "workers": 0})
    with monkeypatch.context() as older:
        older.setattr("kosmos.data.lane.Cursor", partial(Cursor, looks=False))
        train_model(config, registry=ticks_registry())
    steps = taken(tmp_path / "run", config, 1, 16)
    assert {step.other for step in steps} == {""}
    train_model(config.model_copy(update={"output": tmp_path / "new"}), registry=ticks_registry())
    assert origins(steps) != origins(taken(tmp_path / "new", config, 1, 16))


def test_what_cannot_be_known_is_said(tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = small_run(run, train={"steps": 3})
    train_model(config, registry=ticks_registry())
    data: Any = {"sources": [{"path": "ticks", "options": {"size": 150}}]}
    other = small_run(run, train={"steps": 3}, data=data)
    shutil.rmtree(run / "checkpoints")
    assert any("the data are others than they were, or the run went back" in s.other for s in taken(run, other, 1, 3))
    assert {step.other for step in taken(run, config, 1, 3)} == {""}
    with (run / "quarantine.jsonl").open("a") as ledger:  # as where a disk did not answer for a while
        ledger.writelines(f'{{"step": 1, "origin": "ticks {n}", "cause": "hung"}}\n' for n in range(200))
    assert all("by its metrics it took" in step.other for step in taken(run, config, 1, 3))
    (step,) = taken(run, config, 4, 4)
    assert step.other == "the run has no metrics of this step"


def test_documents_in_another_order_are_said_to_be_others(tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    data.mkdir()
    for shard in range(3):
        (data / f"{shard}.jsonl").write_text("".join(f'{{"text": "text {shard} {row}"}}\n' for row in range(10)))
    config = small_run(run, modalities=["text"], data={"sources": [str(data)]}, train={"steps": 2})
    train_model(config, registry=ticks_registry())
    assert {step.other for step in taken(run, config, 1, 2)} == {""}
    (data / "0.jsonl").rename(data / "9.jsonl")
    line = "the documents of data are others than they were, or in another order"
    assert {step.other for step in taken(run, config, 1, 2)} == {line}


def broken_pictures(folder: Path) -> Path:
    """Five pictures with a text each, of which one breaks off."""
    for number in range(5):
        Image.effect_noise((32, 32), 90).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"picture {number}")
    whole = (folder / "3.png").read_bytes()
    (folder / "3.png").write_bytes(whole[: len(whole) // 2])
    return folder


def test_a_row_of_which_nothing_can_be_decoded_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every row is one document here: the next takes the broken one's place."""
    (folder := tmp_path / "pictures").mkdir()
    small = [part for part in SMALL if not part.startswith("data.")]
    one = ["data.tokens_per_pack=96", "data.look_ahead=1", "data.workers=0", "data.held_out=0", "data.quarantine=1.0"]
    given = ["--modalities", "image", "--data", str(broken_pictures(folder)), "--output", str(tmp_path / "run")]
    assert main(["train", *given, *small, *one, "--steps", "8"]) == 0
    capsys.readouterr()
    assert main(["data", str(tmp_path / "run"), "--of-steps", "1-8", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step["other"] for step in steps] == [""] * 8
    bad = [sum(document["is_bad"] for document in step["documents"]) for step in steps]
    assert [len(step["documents"]) - n for step, n in zip(steps, bad, strict=True)] == [1] * 8
    assert sum(bad) in (1, 2)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on five pictures, of which one breaks off."""
    folder, run = tmp_path_factory.mktemp("pictures"), tmp_path_factory.mktemp("runs") / "run"
    broken_pictures(folder)
    small = [*SMALL, "data.workers=0", "data.held_out=0", "data.quarantine=1.0", "--steps", "3"]
    assert main(["train", "--modalities", "image", "--data", str(folder), "--output", str(run), *small]) == 0
    return run


def test_the_command_names_them_and_what_was_left_out(pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["data", str(pictures), "--of-steps", "2-3", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [(step["step"], step["other"]) for step in steps] == [(2, ""), (3, "")]
    rows = {row["step"]: row for row in rows_of(pictures / "metrics.jsonl")}
    for step in steps:
        bad = {document["is_bad"] for document in step["documents"] if document["origin"].endswith("3.png")}
        assert bad <= {True}
        used = [document["tokens"] for document in step["documents"] if not document["is_bad"]]
        assert (len(used), sum(used)) == (rows[step["step"]]["documents"], rows[step["step"]]["tokens"])
    assert any(document["is_bad"] for step in steps for document in step["documents"])
    assert main(["data", str(pictures), "--of-steps", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"step 2: {len(steps[0]['documents'])} documents"
    assert sum("tokens, bad and left out" in line for line in said) == sum(d["is_bad"] for d in steps[0]["documents"])


def test_a_terminal_sees_how_far_it_is(
    pictures: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    assert main(["data", str(pictures), "--of-steps", "2-3"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\nstep "), err) == (1, "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for more in ([], ["--json"]):
        assert main(["data", str(pictures), "--of-steps", "2-3", *more]) == 0
        again, err = capsys.readouterr()
        assert "finding the documents" in err
        assert more or again == out


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--of-steps", "4"], "has taken 3 steps"),
        (["--of-steps", "3-2"], "such as 7-9, got '3-2'"),
        (["--of-steps", "all"], "such as 7-9, got 'all'"),
        (["--of-steps", "1", "--check", "--data", "x"], "--data, --check would have no effect"),
    ],
)
def test_steps_that_there_are_not_are_one_line(
    pictures: Path, given: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["data", str(pictures), *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert main(["data", "--of-steps", "1"]) == 2
    assert "name the folder of a run" in capsys.readouterr().err
