"""``evaluate.sources``: documents that are scored and never trained on."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kosmos import RunConfig, make_run, open_held_out, open_sources
from kosmos.cli import main
from kosmos.errors import ConfigError
from kosmos.run_file import with_absolute_sources
from kosmos.run_sources import open_both, open_named
from kosmos.train.doubts import doubts
from kosmos.train.run import resume_run, train_model
from support.runs import SMALL, rows_of, ticks_registry


def rows(path: Path, count: int, **more: Any) -> str:
    path.parent.mkdir(exist_ok=True, parents=True)
    lines = [{"text": f"{path.stem} says {number}", **more} for number in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def run_of(sources: Sequence[Any], scored: Sequence[Any], **over: Any) -> RunConfig:
    settings = {"data": {"sources": list(sources), "held_out": 0}, "evaluate": {"sources": list(scored)}}
    return make_run({**SMALL, "modalities": {}}, settings, over)


def sizes(sources: Sequence[Any]) -> dict[str, int]:
    return {source.name: len(source) for source in sources}


def test_of_data_that_state_a_split_that_part_is_scored_of_others_all(tmp_path: Path) -> None:
    train, val = rows(tmp_path / "train.jsonl", 20), rows(tmp_path / "val.jsonl", 4)
    split = tmp_path / "split"
    rows(split / "train.jsonl", 5)
    rows(split / "test.jsonl", 3)
    run, registry = run_of([train], [val, {"path": str(split), "name": "other"}]), ticks_registry()
    sources, held_out = open_both(run, registry)
    assert sizes(sources) == {"train": 20} == sizes(open_sources(run, registry, "train"))
    assert sizes(held_out) == {"val": 4, "other": 3} == sizes(open_held_out(run, registry))
    with_share = make_run(run.model_dump(mode="json"), {"data": {"held_out": 0.1}})
    assert sizes(open_held_out(with_share, registry)) == {"train": 2, "val": 4, "other": 3}
    assert sizes(open_named(run, registry, ["other", val])) == {"other": 3, "val": 4}


def test_a_run_scores_them_and_never_draws_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    registry, output = ticks_registry(), tmp_path / "run"
    run = run_of([rows(tmp_path / "train.jsonl", 20)], [rows(tmp_path / "val.jsonl", 4)], output=str(output))
    result = train_model(run, registry=registry)
    assert result.after is not None and {n: s.documents for n, s in result.after.by_source.items()} == {"val": 4}
    assert all(set(row["tokens_by_source"]) == {"train"} for row in rows_of(output / "metrics.jsonl"))
    more = {"train": {"steps": 8}, "evaluate": {"sources": [rows(tmp_path / "new.jsonl", 3)]}}
    again = resume_run(output, more, registry=registry)  # what is scored decides nothing of what is drawn
    assert again.step == 8 and again.after is not None and set(again.after.by_source) == {"new"}
    assert main(["eval", str(output), "--json", "--workers", "0"]) == 0
    assert set(json.loads(capsys.readouterr().out)["by_source"]) == {"new"}


def test_kosmos_data_lists_them_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [
        "data.held_out=0",
        "--data",
        rows(tmp_path / "a.jsonl", 9),
        f"evaluate.sources={rows(tmp_path / 'b.jsonl', 2)}",
    ]
    assert main(["data", "--modalities", "text", *given]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == ["data      a: 9 documents, 0 held out", "scored    b: 2 documents"]
    assert main(["data", "--modalities", "text", *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scored"] == [{"name": "b", "documents": 2}]


def test_one_that_is_called_like_another_is_refused(tmp_path: Path) -> None:
    run = run_of([rows(tmp_path / "a" / "rows.jsonl", 9)], [rows(tmp_path / "b" / "rows.jsonl", 2)])
    with pytest.raises(
        ConfigError, match=r"evaluate\.sources: a source that is trained on is called 'rows' too; give it"
    ):
        open_both(run, ticks_registry())


@pytest.mark.parametrize(
    ("over", "line"),
    [
        ({"evaluate": {"sources": {0: {"weight": 2}}}}, "evaluate.sources.0.weight: unknown field"),
        ({"evaluate": {"sources": {3: {"name": "x"}}}}, "evaluate.sources.3: the last of 1 is evaluate.sources.0"),
    ],
)
def test_a_wrong_field_is_named_where_it_stands(tmp_path: Path, over: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        run_of([rows(tmp_path / "a.jsonl", 9)], [rows(tmp_path / "b.jsonl", 2)], **over)
    assert line in str(error.value)


def test_one_that_is_not_there_is_named(tmp_path: Path) -> None:
    run = run_of([rows(tmp_path / "a.jsonl", 9)], [str(tmp_path / "gone.jsonl")])
    with pytest.raises(Exception, match=r"evaluate\.sources\.0: data .*gone\.jsonl': no such file"):
        open_both(run, ticks_registry())


def test_a_moved_or_copied_source_of_the_run_is_taken_for_it_by_name_and_size(tmp_path: Path) -> None:
    trained = rows(tmp_path / "then" / "chats.jsonl", 9)
    run = run_of([trained], [])

    def told(path: str) -> list[str]:
        said: list[str] = []
        open_named(run, ticks_registry(), [path], said.append)
        return said

    other, copy = rows(tmp_path / "val" / "chats.jsonl", 4), rows(tmp_path / "now" / "chats.jsonl", 9)
    assert told(other) == []
    [line] = told(copy)
    assert line.startswith(f"data {copy!r}: may be the run's source {trained}, moved or copied, most of which was tr")
    Path(trained).unlink()
    assert len(told(copy)) == len(told(other)) == 1


def test_what_is_trained_on_though_it_is_to_be_scored_is_told(tmp_path: Path) -> None:
    def told(sources: list[str], scored: list[str]) -> list[str]:
        return list(doubts(run_of(sources, scored), [], resumed=False))

    train, val = rows(tmp_path / "train.jsonl", 9), rows(tmp_path / "val.jsonl", 2)
    assert told([train], [val]) == told([val], []) == told([train], [train + "x"]) == []
    assert told([train, val], []) == [
        f"data {val}: is called as what is held out, and trained on; name it in evaluate.sources instead to have it "
        "scored alone"
    ]
    assert told([train], [str(tmp_path)]) == [
        f"evaluate.sources: {tmp_path} shares files with {train}, which is trained on"
    ]


def test_a_run_finds_them_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows(tmp_path / "val.jsonl", 2)
    monkeypatch.chdir(tmp_path)
    moved = with_absolute_sources(run_of(["ticks"], ["val.jsonl"]), {"ticks"})
    assert moved.evaluate.sources[0].path == os.path.abspath("val.jsonl")
