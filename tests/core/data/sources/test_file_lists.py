"""Text files that are lists of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kosmos import load_run, make_run, open_sources, resume_run, train_model
from kosmos.data.sources.opening import open_parts
from kosmos.errors import DataError
from kosmos.plugins import load_core
from kosmos.run_sources import open_named
from support.runs import small_run


def write(folder: Path, lines: list[str]) -> Path:
    (folder / "d").mkdir()
    for name in ("a.jsonl", "b.jsonl.gz", "c.ndjson", "README.txt", ".x.jsonl"):
        (folder / "d" / name).touch()
    file = folder / "list.txt"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


@pytest.mark.parametrize("places", ["{here}/d/{name}", "d/{name}", "d/{name}  "])
def test_a_list_of_files_is_refused_and_their_folder_is_named(tmp_path: Path, places: str) -> None:
    lines = [places.format(here=tmp_path, name=name) for name in ("a.jsonl", "", "b.jsonl.gz", "c.ndjson")]
    file = write(tmp_path, [line for line in lines if not line.strip().endswith("d/")])
    config = make_run({"modalities": [], "data": {"sources": [str(file)]}})
    with pytest.raises(DataError, match=rf"^{file}: .*; name their folder \(--data {tmp_path / 'd'}\), or each file"):
        open_sources(config, load_core(), "train")


def test_names_in_a_list_may_be_seen_from_the_working_folder(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "lists").mkdir()
    file = write(tmp_path, ["d/a.jsonl", "d/b.jsonl.gz", "d/c.ndjson"]).rename(tmp_path / "lists" / "list.txt")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"\(--data d\)"):
        open_parts(str(file), registry=load_core(), modalities=[])


@pytest.mark.parametrize(
    ("lines", "more", "kind"),
    [
        (["d/a.jsonl", "d/c.ndjson"], None, "pattern"),  # the other may be what is held out
        (["d/a.jsonl", "d/b.jsonl.gz", "d/c.ndjson"], "d/more/e.jsonl", "pattern"),
        (["d/a.jsonl", "d/b.jsonl.gz", "d/c.ndjson"], "d/list.txt", "pattern"),  # a folder of two kinds is refused
        (["d/a.jsonl", "{here}/d/b.jsonl.gz", "d/c.ndjson"], None, "folder"),
        (["d/a.jsonl", *["d/b.jsonl.gz"] * 20, "d/c.ndjson"], None, "folder"),  # all of a list are its files
    ],
)
def test_a_folder_is_named_that_holds_no_others(tmp_path: Path, monkeypatch, lines, more, kind) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, [line.format(here=tmp_path) for line in lines])
    if more:
        (tmp_path / more).parent.mkdir(exist_ok=True)
        (tmp_path / more).touch()
    said = {"folder": r"name their folder \(--data \S*d\), or each", "pattern": "name a pattern that .*, or each"}
    with pytest.raises(DataError, match=said[kind]):
        open_parts("list.txt", registry=load_core(), modalities=[])


def test_a_run_that_learned_a_list_as_text_goes_on_and_is_scored(tmp_path: Path) -> None:
    file = write(tmp_path, ["d/a.jsonl", "d/c.ndjson"] * 20)
    (tmp_path / "d").rename(tmp_path / "away")  # without its files it is a text
    options = {"chunk_chars": 100}
    over = {"modalities": [], "data": {"sources": [{"path": str(file), "held_out": 0.3, "options": options}]}}
    train_model(small_run(tmp_path / "run", train={"steps": 1}, **over))
    (tmp_path / "away").rename(tmp_path / "d")
    assert resume_run(tmp_path / "run", overrides={"train": {"steps": 2}}).step == 2
    run = load_run(tmp_path / "run", device="cpu").composition
    (source,) = open_named(run.config, run.registry, [str(file)])
    assert len(source) > 0
    with pytest.raises(DataError, match="name files of rows"):
        open_sources(run.config, run.registry, "train")


@pytest.mark.parametrize(
    "lines",
    [
        ["d/a.jsonl", "is the first of the files,", "d/c.ndjson", "the last."],
        ["d/x.jsonl", "d/y.jsonl"],  # which are not there
        ["d", "d"],
    ],
)
def test_a_text_that_speaks_of_files_is_a_text(tmp_path: Path, lines: list[str]) -> None:
    assert len(open_parts(str(write(tmp_path, lines)), registry=load_core(), modalities=[]).whole()) == 1
