"""Rows that are scored as text alone though a column seems to name what they are about."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos import make_run
from kosmos.data.choices import ChoiceSource
from kosmos.data.sources.blind import blind_of
from kosmos.train.doubts import doubts

ASKED = {"question": "Which?", "options": ["A. red", "B. green"], "answer": "B"}
FILM = {"video_id": "001", "duration": "short", "url": "https://films.example/watch?v=1", "videoID": "again", **ASKED}


@pytest.fixture(params=["jsonl", "parquet"])
def told(request: pytest.FixtureRequest, open_: Callable[..., Any], tmp_path: Path) -> Callable[..., list[str]]:
    """What is said of rows, as of questions that offer several answers."""
    file = tmp_path / f"asked.{request.param}"

    def said(*rows: dict[str, Any], modalities: tuple[str, ...] = ("video",), choices: bool = True) -> list[str]:
        if request.param == "jsonl":
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pq.write_table(pa.Table.from_pylist(list(rows)), file)
        given = {"modalities": modalities, "asked": choices, "choices": choices}
        return list(blind_of(open_(file, **given), modalities))

    return said


def test_columns_that_are_called_as_a_medium_is_are_named(told: Callable[..., list[str]]) -> None:
    assert told(FILM, {**FILM, "video_id": "002"}) == [
        "asked: no question holds a medium, and all are scored as text alone, though video_id, videoID may name what "
        "they are about; if so, name a column of files (columns: {video: video_id}), and their folder (root)"
    ]
    (line,) = told({"image": None, "image_number": 3, "image_path": "a/1", **ASKED}, modalities=("audio", "image"))
    assert "though image_number, image_path may name" in line and "{image: image_path}" in line
    (line,) = told({"audio_file": "a1", "text": "a song"}, modalities=("audio",), choices=False)
    assert line.startswith("asked: no document holds a medium")


def test_numbers_name_no_file_and_are_no_advice(told: Callable[..., list[str]]) -> None:
    rows = [{"image_id": 0, "image": None, **ASKED}, {"image_id": 391895, "image": None, **ASKED}]
    assert told(*rows, modalities=("image",)) == [
        "asked: no question holds a medium, and all are scored as text alone, though image_id may name what they are "
        "about; if so, name a column of files (columns: {image: COLUMN}), and their folder (root), as numbers name no "
        "media"
    ]
    (line,) = told({"image_id": 7, "images_key": "a1", **ASKED}, modalities=("image",))
    assert "though image_id, images_key may name" in line and line.endswith(
        "{image: images_key}), and their folder (root)"
    )


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"premise": "A tale.", "idx": 3, "url": "https://texts.example/1", "source": "web"},
        {"video_description": "a cat", "video_category": "cats", "videogame": "x1"},  # what it is like
        {"video_ids": None, "video_id": ""},
        {"video_name": "How to sing"},
        {"has_video": True, "video_file": False},
        {"image_id": 3},  # which the run has not
        {"video_id": 0},
        {"video_id": -1, "video_number": 0},
    ],
)
def test_a_benchmark_of_texts_is_none(told: Callable[..., list[str]], more: dict[str, Any]) -> None:
    assert told({**ASKED, **more}) == []
    assert told({**FILM, **more}, modalities=()) == []


def test_one_row_with_a_medium_is_enough(told: Callable[..., list[str]], tmp_path: Path) -> None:
    (tmp_path / "again.mp4").write_bytes(b"a film")
    assert told({**FILM, "video": "again.mp4"}, {**FILM, "video": None}) == []


def test_a_name_of_a_file_that_is_not_there_is_told_once(open_: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "asked.jsonl").write_text(json.dumps({**ASKED, "film": "again.mp4"}) + "\n")
    source = open_(tmp_path / "asked.jsonl", modalities=("video",), asked=True, choices=True)
    said = [*source.remarks, *blind_of(source, ("video",))]
    assert len(said) == 1 and "name the column (columns: {video: film})" in said[0]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_tells_it_of_its_own_questions_as_it_begins(open_: Any, tmp_path: Path, resumed: bool) -> None:
    (tmp_path / "asked.jsonl").write_text(json.dumps(FILM) + "\n")
    rows = open_(tmp_path / "asked.jsonl", modalities=("video",), asked=True, choices=True)
    asked = ChoiceSource(rows, False, 9, str.encode)
    config = make_run({"modalities": ["video"]})
    found = [line for line in doubts(config, [], resumed=resumed, scored=[asked]) if "may name what they" in line]
    assert len(found) == (not resumed)
