"""Rows with media of modalities that nobody has installed: they are left out, and no text stands for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.components import ModalitySpec
from kosmos.data.document import Source
from kosmos.data.sources import open_source
from kosmos.data.sources.texts import texts_of
from kosmos.data.sources.well_known import is_medium
from kosmos.errors import DataError
from kosmos.hookspecs import hookimpl
from kosmos.plugins import Registry


@hookimpl
def kosmos_modalities() -> Iterable[ModalitySpec]:
    yield ModalitySpec(name="image", target="media:Processor", summary="image", encoder="none", suffixes=(".png",))


@pytest.fixture
def open_() -> Callable[..., Source]:
    """``open_source`` where images alone are installed."""
    plugin = ModuleType("kosmos_test_images")
    vars(plugin).update(KOSMOS_API=1, kosmos_modalities=kosmos_modalities)
    registry = Registry.from_modules({"images": plugin}, core=False)

    def opened(path: object, **given: Any) -> Source:
        settings = {"split": "train", "modalities": ("image",), "held_out": 0.0} | given
        return open_source(str(path), registry=registry, **settings)

    return opened


def chat(asked: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": "A dog."}]


PLAIN = {"messages": chat("Hi")}


@pytest.mark.parametrize(
    ("row", "modality"),
    [
        ({"videos": ["gone.mp4"], "messages": chat("<video>What happens?")}, "video"),
        ({"video": "https://example.com/watch", "messages": chat("<video>What happens?")}, "video"),
        ({"audios": [{"bytes": None, "path": "gone.wav"}], "messages": chat("<audio>What is said?")}, "audio"),
        ({"audio": {"array": [0.0], "sampling_rate": 8}, "text": "silence"}, "audio"),
        ({"audio": "data:audio/wav;base64,aGVsbG8=", "query": "What?", "response": "Hello"}, "audio"),
        ({"videos": [["frame.jpg", "frame.jpg"]], "text": "a film of frames"}, "video"),
        ({"image": "a.png", "video": "gone.webm", "text": "a picture and a film"}, "video"),
        ({"images": ["a.png"], "videos": ["gone.mp4"], "messages": chat("<image><video>Compare.")}, "video"),
    ],
)
def test_rows_with_media_that_nobody_can_read_are_left_out(open_, rows, row, modality):
    source = open_(rows(row, PLAIN))
    assert (len(source), source.left_out) == (1, {modality: 1})
    with pytest.raises(DataError, match=rf"no row is left \(1 with {modality}\).*install the plugin for {modality}$"):
        open_(rows(row))


@pytest.mark.parametrize(
    "row",
    [
        {"video": "Alien: Romulus (2024), reviewed by A. B.", "text": "a title"},
        {"video": "", "text": "none"},
        {"videos": [], "audios": None, "messages": chat("Close <video> tags")},
        {"audio": True, "video": 12, "text": "flags and numbers"},
        {"audio": {"path": None, "bytes": None}, "text": "an object of nulls"},
    ],
)
def test_what_is_no_medium_leaves_no_row_out(open_, rows, row):
    source = open_(rows(row, PLAIN))
    assert (len(source), source.left_out) == (2, {})


def test_lists_of_media_in_a_table_of_texts_are_media(open_, tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('videos\ttext\n["a.mp4", "b.mp4"]\tx\n[{"path": "a.mp4"}]\ty\n[untitled]\tz\n\tw\n')
    source = open_(path, modalities=())
    assert (list(texts_of(source)), source.left_out) == (["z", "w"], {"video": 2})


def test_a_column_that_was_given_a_meaning_has_that(open_, rows):
    named = open_(rows({"video": "a.png", "text": "a picture"}), columns={"image": "video"})
    assert (named.document(0).modalities, named.left_out) == (("image",), {})
    path = rows({"video": {"name": "Watch https://example.com/a.mp4"}, "text": "x"})
    assert list(texts_of(open_(path, columns={"text": "video.name"}))) == ["Watch https://example.com/a.mp4"]
    assert len(open_(rows({"video": "gone.mp4", "text": "x"}), template="{text}")) == 1


def test_tables_tell_media_from_titles(open_, tmp_path):
    film = [{"bytes": b"film", "path": None}, None, {"bytes": None, "path": None}]
    columns = {"text": ["a", "b", "c"], "video": film, "audio": ["A title", "gone.mp3", None], "image": [None] * 3}
    pq.write_table(pa.table(columns), tmp_path / "part.parquet")
    source = open_(tmp_path / "part.parquet")
    assert (list(texts_of(source)), source.left_out) == (["c"], {"audio": 1, "video": 1})
    assert source.table.columns == ("text", "image")  # to train, nobody reads the films


def test_datasets_tell_media_from_titles(open_, tmp_path):
    datasets = pytest.importorskip("datasets")
    columns = {"text": ["a", "b", "c"], "video": [b"film", None, None], "audio": ["A title", "gone.mp3", "Another"]}
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "set"))
    source = open_(tmp_path / "set")
    assert (list(texts_of(source)), source.left_out) == (["c"], {"audio": 1, "video": 1})


@pytest.mark.parametrize("name", ["a.mp4", "films/My film.MKV", "/data/b.flac", "C:\\films\\c.mov", "s3://bucket/key"])
def test_names_and_addresses_are_media(name):
    assert is_medium(name) and is_medium([None, name]) and is_medium({"path": name})
    assert is_medium([{"video": name, "clip": [0, 1]}]) and not is_medium({"video": "A title"})


@pytest.mark.parametrize(
    "text",
    [
        "Interview on abc.net.au",
        "line one\nline two.mp4",
        "Node.js",
        "Dr. Who",
        "Alien: Romulus",
        "e.g.",
        ".",
        "Vol. 2",
        "a/b",
        "See http://a b",
    ],
)
def test_titles_are_none(text):
    assert not is_medium(text) and not is_medium([text])


def test_what_to_do_is_said_to_a_run_on_text_alone(open_, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"video": "https://example.com/a.mp4", "text": "news"}\n')
    with pytest.raises(
        DataError, match=r'1 with video\); for the text alone give a template \(template: "\{text\}"\), or'
    ):
        open_(tmp_path / "rows.jsonl", modalities=())
