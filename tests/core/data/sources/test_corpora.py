"""A plugin knows folders by what they hold, and reads them as rows."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kosmos import CorpusFiles, CorpusSpec, DataError, PluginError, SampleError, Source, hookimpl
from kosmos.data.sources.opening import open_parts
from kosmos.data.sources.since import read_before
from kosmos.plugins import Registry


def read(files: CorpusFiles) -> Iterator[tuple[str, Any]] | None:
    """Lines ``ID text`` of the files ``*.list``."""
    lists = [name for name in files.names if name.endswith(".list")]
    return _rows(files, lists) if lists else None


def _rows(files: CorpusFiles, lists: list[str]) -> Iterator[tuple[str, Any]]:
    for name in lists:
        for origin, line in files.lines(name):
            identity, _, text = line.partition(" ")
            yield origin, {"id": identity, "text": text} if text else SampleError("nothing is said")
    if "broken.list" in files:
        raise ZeroDivisionError("of the plugin")


@hookimpl
def kosmos_corpora() -> Iterator[CorpusSpec]:
    yield CorpusSpec(name="missing", target="kosmos_test_lists:missing", summary="One that is broken.")
    yield CorpusSpec(name="lists", target="kosmos_test_lists:read", summary="Lines of lists.")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    module: Any = ModuleType("kosmos_test_lists")
    module.KOSMOS_API, module.kosmos_corpora, module.read = 1, kosmos_corpora, read
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Registry.from_modules({"lists": module})


def opened(folder: Path, registry: Registry, **given: Any) -> Any:
    return open_parts(str(folder), registry=registry, modalities=[], **given)


def texts(source: Source) -> list[str]:
    return [source.document(number).segments[0].text for number in range(len(source))]  # type: ignore[union-attr]


def write(folder: Path, **lists: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in lists.items():
        (folder / f"{name}.list").write_text(text)
    return folder


def test_a_folder_that_a_plugin_knows_is_read_as_rows(tmp_path: Path, registry: Registry) -> None:
    write(tmp_path, a="1 one\n\n2 two\n", b="3 three\n4\n1 again\n")
    (tmp_path / ".c.list").write_text("9 hidden\n")
    source = opened(tmp_path, registry).whole()
    assert [source.document(n).segments[0].text for n in range(3)] == ["one", "two", "three"]
    places = ["a.list:1", "a.list:3", "b.list:1", "b.list:2", "b.list:3"]
    assert [source.origin(n) for n in range(5)] == [f"{tmp_path}/{place}" for place in places]
    for number, told in ((3, "nothing is said"), (4, "id '1' is that of a row before it too")):
        with pytest.raises(SampleError, match=rf"b\.list:{number - 1}: {told}"):
            source.document(number)
    assert ("corpus", "lists") in registry.resolved  # so that the run notes its plugin


def test_rows_of_a_corpus_take_columns_and_templates_and_travel_to_workers(tmp_path: Path, registry: Registry) -> None:
    write(tmp_path, a="".join(f"{n} text {n}\n" for n in range(20)))
    parts = opened(tmp_path, registry, template="{id}: → {text}", columns={})
    source = pickle.loads(pickle.dumps(parts.part("train", 0.1)))
    assert len(source) == 18
    assert source.document(0).segments[1].text.startswith(" text")
    again = opened(tmp_path, registry, template="{id}: → {text}").part("train", 0.1)
    assert again.fingerprint() == source.fingerprint()


def test_files_that_are_named_by_splits_are_followed(tmp_path: Path, registry: Registry) -> None:
    write(tmp_path, train="1 one\n", dev="2 two\n")
    assert texts(opened(tmp_path, registry).part("train", 0.5)) == ["one"]
    assert texts(opened(tmp_path, registry).part("held_out", 0.5)) == ["two"]


def test_what_no_plugin_knows_is_read_as_ever(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "as ever"}\n')
    assert texts(opened(tmp_path, registry).whole()) == ["as ever"]


def test_runs_that_were_begun_before_read_folders_as_they_did(tmp_path: Path, registry: Registry) -> None:
    write(tmp_path, a="1 one\n")
    (tmp_path / "b.jsonl").write_text('{"text": "as ever"}\n')
    assert texts(opened(tmp_path, registry).whole()) == ["one"]
    with read_before():
        assert texts(opened(tmp_path, registry).whole()) == ["as ever"]


def test_a_plugin_that_fails_at_its_corpus_is_named(tmp_path: Path, registry: Registry) -> None:
    write(tmp_path, broken="1 one\n")
    with pytest.raises(PluginError, match=r"corpus 'lists': reading .* failed: ZeroDivisionError: of the plugin"):
        opened(tmp_path, registry)


def test_a_file_of_a_corpus_may_not_lead_out_of_its_folder(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "secret").write_text("1 secret\n")
    folder = write(tmp_path / "data", a="2 two\n")
    (folder / "b.list").symlink_to(tmp_path / "secret")
    with pytest.raises(DataError, match="a link that leads out"):
        opened(folder, registry)
    assert texts(opened(folder, registry, root=tmp_path).whole()) == ["two", "secret"]


def test_bytes_that_are_no_utf8_cost_their_row_alone(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "a.list").write_bytes(b"\xef\xbb\xbf1 one\r\n2 caf\xe9\r\n")
    source = opened(tmp_path, registry).whole()
    assert source.document(0).segments[0].text == "one"
    with pytest.raises(SampleError, match=r"a\.list:2: not UTF-8 at byte 3 of the text"):
        source.document(1)
    (tmp_path / "a.list").write_text("1 one\n", encoding="utf-16")
    with pytest.raises(DataError, match="expected UTF-8, got UTF-16"):
        opened(tmp_path, registry)
