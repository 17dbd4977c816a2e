"""Runs that begin with others, one after the other: what the first were trained on, and what is told of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kosmos.cli import main
from kosmos.run_file import make_run
from kosmos.train.begun import BRANCH, note, noted
from kosmos.train.lineage import lineage
from kosmos.train.output import RunFolder
from kosmos.train.run import train_model
from kosmos.train.trained_before import scored_before
from support.runs import SMALL, Listener, ticks_registry

TEXTS = {"modalities": {}, "train": {"steps": 1, "precision": "fp32"}, "trackers": []}


def rows(path: Path, count: int = 60) -> str:
    path.write_text("".join(json.dumps({"id": f"{n}", "text": f"{path.stem} {n}"}) + "\n" for n in range(count)))
    return str(path)


def warned(output: str, *sources: Any, **over: Any) -> list[str]:
    run = make_run({**SMALL, "modalities": {}}, {"output": output, "data": {"sources": list(sources)}}, TEXTS, over)
    train_model(run, registry=ticks_registry(), reporter=(said := Listener()))
    return [
        line for line in said.said
        if "warning: " in line and "data.seed" not in line and "scores of so few" not in line
    ]  # fmt: skip


def test_what_an_earlier_stage_was_trained_on_is_not_scored_in_silence(tmp_path: Path) -> None:
    old, new = rows(tmp_path / "old.jsonl"), rows(tmp_path / "new.jsonl")
    first, second, third, *others = (str(tmp_path / f"run{number}") for number in range(1, 9))
    few, many = ({"path": old, "held_out": share} for share in (0.05, 0.4))
    assert warned(first, few) == []
    assert warned(second, new, init=first) == []
    assert warned(third, few, new, init=second) == []
    (line,) = warned(others[0], many, init=third)  # once, of the last that was trained on it
    assert f"of old a share of 0.05 was held out in {third}, and 0.4 is here" in line
    (line,) = warned(others[1], many, init=second)
    assert f"held out in {first}, and 0.4 is here, so that some of what is scored here was trained on there" in line
    shutil.rmtree(Path(first, "checkpoints"))
    (line,) = warned(others[2], many, init=second)
    assert f"init: {first} was trained on data of this run and has no checkpoint any more" in line
    none = {"path": old, "held_out": 0}
    assert warned(others[4], none, new, init=second) == []
    shutil.rmtree(first)
    (line,) = warned(others[3], many, init=second)
    assert line == (
        f"warning: init: {second} began with {first}, which is gone: whether what is scored here was trained on there "
        "is not known"
    )


def written(folder: Path, *sources: str, init: Path | None = None) -> Path:
    folder.mkdir()
    fields = {"data": {"sources": [{"path": path} for path in sources]}, "init": init and {"path": str(init)}}
    (folder / "run.yaml").write_text(json.dumps(fields))
    return folder


def test_scored_files_that_an_earlier_stage_was_trained_on_are_said(tmp_path: Path) -> None:
    old, new, other = (rows(tmp_path / f"{name}.jsonl", 2) for name in ("old", "new", "other"))
    first = written(tmp_path / "first", old)
    second = written(tmp_path / "second", new, init=first)

    def said(**over: Any) -> list[str]:
        return list(scored_before(make_run(TEXTS, {"init": str(second)}, over)))

    assert said(evaluate={"sources": [old]}) == [
        f"evaluate.sources: {old} shares files with {old}, which {first} was trained on"
    ]
    (line,) = said(evaluate={"sources": [other], "choices": [new]})
    assert line == f"evaluate.choices: {new} shares files with {new}, which {second} was trained on"
    assert said(evaluate={"sources": [old]}, data={"sources": [old]}) == []  # which is told of the run itself
    assert said(evaluate={"sources": [old]}, init=None) == []


def test_kosmos_eval_says_so_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = rows(tmp_path / "old.jsonl"), rows(tmp_path / "new.jsonl")
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    warned(first, old)
    (line,) = warned(second, new, init=first, evaluate={"sources": [old]})
    assert line == f"warning: evaluate.sources: {old} shares files with {old}, which {first} was trained on"
    assert main(["eval", second, "--workers", "0"]) == 0
    assert line in capsys.readouterr().err
    assert main(["eval", second, "--workers", "0", "--data", new]) == 0
    assert line not in capsys.readouterr().err


def test_kosmos_eval_says_so_of_data_that_are_named_and_of_each_run_that_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = (rows(tmp_path / f"{name}.jsonl", 4) for name in ("old", "new"))
    asked = tmp_path / "asked.jsonl"
    asked.write_text(json.dumps({"query": "old", "choices": ["1", "2"], "gold": 0}) + "\n")
    first, second, third = (str(tmp_path / name) for name in ("first", "second", "third"))
    warned(first, old, rows(asked.with_name("more.jsonl"), 4))
    warned(second, new, init=first)
    warned(third, new, init=second)
    shutil.copy(asked, tmp_path / "more.jsonl")  # the run was trained on a file of this name
    more = str(tmp_path / "more.jsonl")

    def told(*arguments: str) -> list[str]:
        assert main(["eval", *arguments, "--data", old, "--choices", more, "--workers", "0"]) == 0
        return [line for line in capsys.readouterr().err.splitlines() if "was trained on" in line]

    lines = [
        f"{option}: {path} shares files with {path}, which {first} was trained on"
        for option, path in (("--data", old), ("--choices", more))
    ]
    assert told(second) == [f"warning: {line}" for line in lines]
    assert told(third, "--against", second) == [f"warning: {run}: {line}" for run in (third, second) for line in lines]


def test_a_chain_of_runs_ends_at_a_cycle_and_where_a_folder_is_gone(tmp_path: Path) -> None:
    second = written(tmp_path / "second", init=tmp_path / "first" / "checkpoints" / "step-00000002")
    first = written(tmp_path / "first", init=second)
    assert [run.path for run in lineage(second).runs] == [second, first]
    assert lineage(second).ends() is None
    shutil.rmtree(first)
    assert lineage(second).lost == first and str(first) in str(lineage(second).ends())
    assert lineage(first).ends() is None


def test_a_report_shows_the_chain_of_runs_with_the_steps_that_were_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    first = written(tmp_path / "first", init=gone)
    second = written(tmp_path / "second", init=first)
    third = written(tmp_path / "third", init=second / "checkpoints" / "step-00000040")
    (second / "begun.json").write_text(json.dumps({"init": {"path": "/elsewhere", "step": 1200}}))  # it was moved
    (third / "begun.json").write_text("{")  # cut short
    assert main(["report", str(third)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == (
        f"init       {second} (step 40) < {first} (step 1,200) < {gone} (gone)"
    )
    assert main(["report", str(third), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lineage"] == {
        "init": [{"path": str(second), "step": 40}, {"path": str(first), "step": 1200}],
        "lost": str(gone), "branch": None, "average": None,
    }  # fmt: skip
    (first / "run.yaml").unlink()
    assert main(["report", str(second), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lineage"]["lost"] == str(first)


def test_what_is_made_of_a_run_keeps_what_that_began_with(tmp_path: Path) -> None:
    run, new = (RunFolder(written(tmp_path / name)) for name in ("run", "new"))
    (run.path / "begun.json").write_text(json.dumps({"init": {"path": "/a", "step": 3}, "branch": {"path": "/b"}}))
    note(new, run, BRANCH, step=7)
    assert noted(new) == {"init": {"path": "/a", "step": 3}, "branch": {"path": str(run.path), "step": 7}}
