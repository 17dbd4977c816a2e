"""A run goes on among its own documents: as many others, or the same in another order, are refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kosmos.data.document import Source
from kosmos.data.fingerprint import fingerprint_of
from kosmos.data.sources.renamed import Renamed
from kosmos.data.sources.source import RowSource
from kosmos.errors import CheckpointError, DataError
from kosmos.run_file import make_run
from kosmos.run_sources import open_sources
from kosmos.train.run import resume_run, train_model
from kosmos.train.saved import load_run
from support.runs import assert_same_tensors, rows_of, small_run, ticks_registry
from support.ticks import TicksSource

ROWS, SHARDS = 12, 3


def shards(folder: Path, *, ids: bool = False, name: Callable[[int], str] = "part-{}.jsonl".format) -> Path:
    folder.mkdir()
    for shard in range(SHARDS):
        texts = (f"text {row} of shard {shard}" for row in range(ROWS))
        rows = [f'{{"id": "{text}", "text": "{text}"}}' if ids else f'{{"text": "{text}"}}' for text in texts]
        (folder / name(shard)).write_text("\n".join(rows) + "\n")
    return folder


def opened(path: Path, *, limit: int | None = None) -> Source:
    entry = {"path": str(path), "name": "texts", **({"limit": limit} if limit else {})}
    config = make_run({"modalities": ["text"], "data": {"sources": [entry], "held_out": 0}})
    (source,) = open_sources(config, ticks_registry(), "train")
    return source


def told(path: Path, **how: int) -> str:
    found = fingerprint_of(opened(path, **how))
    assert found
    return found


@pytest.mark.parametrize("ids", [False, True])
def test_files_in_another_order_are_others_and_files_in_another_place_are_not(tmp_path: Path, ids: bool) -> None:
    data = shards(tmp_path / "data", ids=ids)
    before = told(data)
    assert told(Path(shutil.copytree(data, tmp_path / "another place"))) == before
    (data / "part-0.jsonl").rename(data / "zzz.jsonl")
    assert told(data) != before
    (data / "zzz.jsonl").rename(data / "part-0.jsonl")
    assert told(data) == before


def test_a_file_may_be_renamed_where_it_is_all(tmp_path: Path) -> None:
    data = shards(tmp_path / "data")
    before = told(data / "part-0.jsonl")
    (data / "part-0.jsonl").rename(data / "all.jsonl")
    assert told(data / "all.jsonl") == before


def test_rows_with_other_ids_are_others_and_repaired_texts_are_not(tmp_path: Path) -> None:
    data = shards(tmp_path / "data", ids=True)
    before, file = told(data), data / "part-1.jsonl"
    file.write_text(file.read_text().replace('"text": "text 3', '"text": "a better text 3'))
    assert told(data) == before
    file.write_text(file.read_text().replace('"id": "text 3', '"id": "another 3'))
    assert told(data) != before


@pytest.mark.parametrize("ids", [False, True])
def test_lines_may_move_within_a_file(tmp_path: Path, ids: bool) -> None:
    data = shards(tmp_path / "data", ids=ids)
    before, file = told(data), data / "part-1.jsonl"
    file.write_text("\n" + file.read_text())
    assert told(data) == before


def test_two_of_very_many_small_files_that_were_exchanged_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(1500):
        (tmp_path / "data" / f"{number:04}.jsonl").write_text('{"text": "one"}\n' * (1 + number % 2))
    before = told(tmp_path / "data")
    (tmp_path / "data" / "0001.jsonl").rename(tmp_path / "data" / "0000a.jsonl")
    assert told(tmp_path / "data") != before


def test_of_files_in_folders_the_names_count(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / "data" / "texts").mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / "texts" / f"{number}.txt").write_text(f"text {number}")
    before = told(tmp_path / "data")
    (tmp_path / "data" / "texts" / "0.txt").rename(tmp_path / "data" / "texts" / "9.txt")
    assert told(tmp_path / "data") != before


def test_some_documents_and_a_source_under_another_name_are_told_by_the_whole(tmp_path: Path) -> None:
    source = opened(shards(tmp_path / "data"))
    assert fingerprint_of(Renamed("other", source)) == fingerprint_of(source)
    assert told(tmp_path / "data", limit=5) == fingerprint_of(source)


class OfPlugin(TicksSource):
    """A source that tells something else than a text, or fails to."""

    def __init__(self, told: object) -> None:
        super().__init__("train")
        self.told = told

    def fingerprint(self) -> object:
        if isinstance(self.told, Exception):
            raise self.told
        return self.told


@pytest.mark.parametrize(
    ("said", "line"),
    [(7, r"ticks: OfPlugin\.fingerprint: expected a text or None, got 7"), (KeyError("x"), r"raised KeyError: 'x'")],
)
def test_a_plugin_that_tells_something_else_is_named(said: object, line: str) -> None:
    with pytest.raises(DataError, match=line):
        fingerprint_of(OfPlugin(said))  # type: ignore[arg-type]


def test_a_plugin_that_does_not_know_is_compared_by_its_name_and_length() -> None:
    assert fingerprint_of(OfPlugin(None)) is None  # type: ignore[arg-type]


def test_a_run_does_not_go_on_and_a_scoring_warns(tmp_path: Path) -> None:
    data, registry, run = shards(tmp_path / "data"), ticks_registry(), tmp_path / "run"
    entry = {"path": str(data), "name": "texts"}
    config = small_run(run, modalities=["text"], data={"sources": [entry], "held_out": 0.2}, train={"steps": 2})
    train_model(config, registry=registry)
    saved = load_run(run, registry=registry)
    assert not saved.other_data(open_sources(config, registry, "train"))

    (data / "part-0.jsonl").rename(data / "zzz.jsonl")
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(
        CheckpointError,
        match=r"was made with other documents of data\.sources\.0, or in another order, .* Bring back the files of "
        r"data\.sources\.0 as they were, or start a new run that begins with its weights",
    ):
        resume_run(run, {"train": {"steps": 4}}, registry=registry)
    assert (run / "metrics.jsonl").read_bytes() == before
    (line,) = saved.other_data(open_sources(config, registry, "train"))
    assert line.startswith("texts: other documents to train on than when the run was trained, or in another order; ")
    (data / "zzz.jsonl").rename(data / "part-0.jsonl")
    assert resume_run(run, {"train": {"steps": 4}}, registry=registry).step == 4


def test_a_run_that_was_begun_with_an_end_for_each_piece_of_a_text_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("".join(f"the line of number {n}\n\n" for n in range(200)))
    data = {"sources": [{"path": str(tmp_path / "a.txt"), "options": {"chunk_chars": 30}}]}

    def train(name: str) -> Path:
        return train_model(small_run(tmp_path / name, modalities=[], data=data), registry=ticks_registry()).output

    new = train("new")
    with monkeypatch.context() as earlier:
        earlier.setattr(RowSource, "cuts_texts", False)  # as earlier versions knew nothing of it
        old = train("old")
        shutil.copytree(old, tmp_path / "whole")
        resume_run(tmp_path / "whole", {"train": {"steps": 9}}, registry=ticks_registry())
    resume_run(old, {"train": {"steps": 9}}, registry=ticks_registry())
    tokens = {run: [row["tokens"] for row in rows_of(run / "metrics.jsonl")] for run in (old, tmp_path / "whole", new)}
    assert tokens[old] == tokens[tmp_path / "whole"]
    assert tokens[old][:6] != tokens[new]
    assert_same_tensors(old, tmp_path / "whole")
