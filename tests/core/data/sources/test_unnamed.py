"""Files in columns that nobody named are told, be it beside media that are read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kosmos.data.sources import scan_cache
from kosmos.data.sources.unnamed import warnings_of
from kosmos.errors import DataError

PICTURE = {"image": "a.png", "text": "x"}
NAME_IT = {"audio_path": "name the column (columns: {audio: audio_path})"}
IN_A_RUN = ", in a run with audio among its --modalities"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({**PICTURE, "audio_path": "b.wav"}, NAME_IT),
        ({**PICTURE, "sound": "b.wav"}, {"sound": "name the column (columns: {audio: sound})"}),
        ({**PICTURE, "audio_path": "a.png"}, {"audio_path": "name the column (columns: {audio: audio_path})"}),
        ({"images": ["a.png"], "query": "What?", "response": "y", "audio_path": "b.wav"}, NAME_IT),
        ({**PICTURE, "mask": "c.png"}, {"mask": "write the files of mask into image, which may be a list"}),
        ({**PICTURE, "audio_path": "gone.wav"}, {}),
        ({**PICTURE, "path": "a.png", "notes": "notes.txt", "audio_path": None, "title": "b.wav by A."}, {}),
        ({**PICTURE, "audio": "b.wav", "id": "b.wav", "file_name": "b.wav"}, {}),
        ({"text": "x"}, {}),
    ],
)
def test_files_beside_media_are_told_with_what_to_do(open_, rows, row, expected):
    path = rows(row, PICTURE)
    for name in ("c.png", "notes.txt"):
        (path.parent / name).write_bytes(b"there")
    source = open_(path)
    assert source.beside == expected
    assert len(source) == 2


def test_a_run_without_their_modality_is_told_too(open_, rows):
    path = rows({**PICTURE, "audio_path": "b.wav"})
    assert open_(path, modalities=("image",)).beside == {"audio_path": NAME_IT["audio_path"] + IN_A_RUN}


def test_columns_in_use_and_those_of_templates_are_not_told(open_, rows):
    path = rows({**PICTURE, "audio_path": "b.wav"})
    assert open_(path, columns={"audio": "audio_path"}).beside == {}
    assert open_(path, template="[image] → {text}").beside == {}


def test_they_are_recorded_with_what_else_was_found(open_, rows, tmp_path, monkeypatch):
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 0)
    path = rows({**PICTURE, "audio_path": "b.wav"})
    assert open_(path).beside == open_(path).beside == NAME_IT


@pytest.mark.parametrize(
    ("row", "advice"),
    [
        ({"image_path": "a.png", "audio_path": "b.wav"}, r"columns: .*columns: {\w+: \w+_path, \w+: \w+_path}}'$"),
        ({"image_path": "a.png", "audio_path": "a.png"}, r"columns: .*columns: {image: image_path, audio: audio_path}"),
        ({"audio_path": "a.png", "image_path": "a.png"}, r"{image: image_path, audio: audio_path}"),
        ({"meta": "a.json", "image_path": "a.png"}, r"the column: .*columns: {image: image_path}}'$"),
        ({"left": "a.png", "right": "c.png"}, r"{image: left}}', and write what left, right hold into one list of"),
    ],
)
def test_a_refusal_names_every_column_of_media(open_, rows, row, advice):
    path = rows({**row, "text": "x"})
    for name in ("a.json", "c.png"):
        (path.parent / name).write_bytes(b"there")
    with pytest.raises(DataError, match=advice):
        open_(path)


def test_what_is_said_of_them_is_one_line():
    assert list(warnings_of(SimpleNamespace(name="rows", beside={}))) == []
    assert list(warnings_of(SimpleNamespace(name="rows", beside={"a": "do this", "b": "do that"}))) == [
        "rows: its rows name files in a, b, which are not read, beside media that are; if they are meant, do this; "
        "do that"
    ]
