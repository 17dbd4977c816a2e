"""Text files that are lists of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kosmos import make_run, open_sources
from kosmos.data.sources.opening import open_parts
from kosmos.errors import DataError
from kosmos.plugins import load_core


def write(folder: Path, lines: list[str]) -> Path:
    (folder / "d").mkdir()
    for name in ("a.jsonl", "b.jsonl.gz", "c.parquet"):
        (folder / "d" / name).touch()
    file = folder / "list.txt"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


@pytest.mark.parametrize("places", ["{here}/d/{name}", "d/{name}", "d/{name}  "])
def test_a_list_of_files_is_refused_and_their_folder_is_named(tmp_path: Path, places: str) -> None:
    lines = [places.format(here=tmp_path, name=name) for name in ("a.jsonl", "", "b.jsonl.gz", "c.parquet")]
    file = write(tmp_path, [line for line in lines if not line.strip().endswith("d/")])
    config = make_run({"modalities": [], "data": {"sources": [str(file)]}})
    with pytest.raises(DataError, match=rf"^{file}: .*; name their folder \(--data {tmp_path / 'd'}\), or each file"):
        open_sources(config, load_core(), "train")


def test_names_in_a_list_may_be_seen_from_the_working_folder(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "lists").mkdir()
    file = write(tmp_path, ["d/a.jsonl"]).rename(tmp_path / "lists" / "list.txt")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"\(--data d\)"):
        open_parts(str(file), registry=load_core(), modalities=[])


@pytest.mark.parametrize(
    "lines",
    [
        ["d/a.jsonl", "is the first of the files,", "d/c.parquet", "the last."],
        ["d/x.jsonl", "d/y.jsonl"],  # which are not there
        ["d", "d"],
    ],
)
def test_a_text_that_speaks_of_files_is_a_text(tmp_path: Path, lines: list[str]) -> None:
    assert len(open_parts(str(write(tmp_path, lines)), registry=load_core(), modalities=[]).whole()) == 1
