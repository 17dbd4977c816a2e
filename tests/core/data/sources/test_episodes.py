"""Folders of a robot's episodes are no table, and the error says what to write."""

from __future__ import annotations

import pytest

from kosmos.errors import DataError

FILES = ("meta/info.json", "meta/tasks.jsonl", "meta/episodes.jsonl")


@pytest.fixture
def episodes(table, tmp_path):
    table({"action": [[0.5, 0.25]] * 2, "episode_index": [0, 0]}, "lerobot/data/chunk-000/episode_000000.parquet")
    for name in FILES:
        (tmp_path / "lerobot" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lerobot" / name).write_text('{"episode_index": 0, "tasks": ["Pick the cube."]}\n')
    film = tmp_path / "lerobot/videos/chunk-000/observation.images.top/episode_000000.mp4"
    film.parent.mkdir(parents=True)
    film.write_bytes(b"film")
    return tmp_path / "lerobot"


def test_it_says_what_was_found_and_which_rows_to_write(open_, episodes):
    with pytest.raises(DataError) as error:
        open_(episodes, modalities=("video",))
    said = str(error.value)
    row = '{"video": "videos/chunk-000/observation.images.top/episode_000000.mp4", "text": "TASK"}'
    assert "episodes as LeRobot writes them (data/: 1 tables of moments" in said
    assert said.endswith(f"write a row for each episode into {episodes}/rows.jsonl and name that file: {row}")
    (episodes / "rows.jsonl").write_text(row)
    (medium,) = open_(episodes / "rows.jsonl", modalities=("video",)).document(0).media
    assert medium.source.name == "episode_000000.mp4"


def test_without_media_it_names_the_tables(open_, episodes):
    next(episodes.rglob("*.mp4")).unlink()
    with pytest.raises(DataError, match=r"name the tables \(--data '.*/data/\*\*/\*.parquet'\) with a template"):
        open_(episodes, modalities=("image",))
    assert len(open_(f"{episodes}/data/**/*.parquet", template="{action}")) == 2


def test_other_folders_are_refused_as_before(open_, episodes):
    (episodes / "meta/info.json").unlink()
    with pytest.raises(DataError, match="name the file") as error:
        open_(episodes, modalities=("video",))
    assert "LeRobot" not in str(error.value)
