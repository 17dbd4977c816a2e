"""Held-out rows about media that other rows train on are warned of, with the column that keeps them together."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from kosmos.data.duplicates import find_duplicates
from kosmos.plugins import load_plugins
from kosmos.run_file import make_run
from kosmos.run_sources import open_both
from kosmos.train.media_held_out import media_held_out


def opened(folder: Path, rows: list[dict[str, Any]], **entry: Any) -> tuple[list[Any], list[Any]]:
    """What is trained on and held out of rows about pictures."""
    for name in {name for row in rows for key in ("photo", "logo") if (name := row.get(key))}:
        Image.new("RGB", (8, 8), int(name.split(".")[0], 36)).save(folder / name)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"image": "photo", **entry.pop("columns", {})}
    source = {"path": str(folder / "rows.jsonl"), "columns": columns, **entry}
    config = make_run({"modalities": ["image"], "data": {"sources": [source], "held_out": 0.2}})
    trained, held_out = open_both(config, load_plugins())
    return [*trained], [*held_out]


def captions(of: int, each: int, **more: Any) -> list[dict[str, Any]]:
    return [{"photo": f"{n}.png", "text": f"{n} is {m}", **more} for n in range(of) for m in range(each)]


def test_captions_of_one_medium_on_both_sides_are_told_with_the_column_that_parts_them(tmp_path: Path) -> None:
    trained, held_out = opened(tmp_path, captions(4, 5))
    [line] = media_held_out(trained, held_out)
    assert line.startswith("rows: 4 of 4 held-out documents are about media that others are trained on too (such as ")
    assert line.endswith("name the column that tells it (columns: {group: photo})")
    found = find_duplicates(trained, held_out)
    assert (found.held_out_and_trained, found.about_trained_media) == (0, 4)
    assert found.told().endswith("(columns: {group: photo})")


def test_by_that_column_nothing_is_left_to_tell(tmp_path: Path) -> None:
    assert not [*media_held_out(*opened(tmp_path, captions(10, 2), columns={"group": "photo"}))]


def test_rows_that_each_have_a_medium_of_their_own_are_not_warned_of(tmp_path: Path) -> None:
    assert not [*media_held_out(*opened(tmp_path, captions(10, 1)))]


def test_a_medium_that_most_rows_have_besides_their_own_is_not_warned_of(tmp_path: Path) -> None:
    rows = [{"photo": f"{n}.png", "logo": "logo.png", "text": f"{n}"} for n in range(20)]
    parts = opened(tmp_path, rows, template="[image:photo] [image:logo] → {text}", columns={})
    assert len([*parts[1][0].document(0).media]) == 2
    assert not [*media_held_out(*parts)]
    assert find_duplicates(*parts).about_trained_media == 0


def test_what_stands_for_pictures_that_are_missing_is_not_warned_of(tmp_path: Path) -> None:
    parts = opened(tmp_path, [{"photo": "none.png" if n % 2 else f"{n}.png", "text": f"{n}"} for n in range(40)])
    assert not [*media_held_out(*parts)]
    assert find_duplicates(*parts).about_trained_media == 0


def test_by_a_column_of_what_stands_for_pictures_no_group_is_advised(tmp_path: Path) -> None:
    rows = [{"photo": "none.png", "text": f"{n}"} for n in range(40)] + captions(10, 3)
    parts = opened(tmp_path, rows)
    [line] = media_held_out(*parts)
    assert line.endswith("not seen")
    assert find_duplicates(*parts).about_trained_media
    assert "group" not in find_duplicates(*parts).told()


def test_of_many_rows_those_near_the_held_out_ones_are_looked_at(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("kosmos.train.media_held_out.MOST_LOOKED_AT", 8)
    parts = opened(tmp_path, captions(12, 5))
    [line] = media_held_out(*parts)
    said = re.search(r": (?:at least )?(\d+) of 12 held-out .*; of (\d+) of 48 trained rows\)", line)
    assert said is not None, line
    assert int(said[1]) > 4  # of 8 rows that are looked at
    assert 8 < int(said[2]) < 48


def test_a_single_medium_can_be_kept_apart_by_nothing(tmp_path: Path) -> None:
    assert not [*media_held_out(*opened(tmp_path, captions(1, 10)))]


@pytest.mark.parametrize("entry", [{}, {"held_out": {"fold": 1}}])
def test_of_rows_that_are_held_out_by_name_no_group_is_advised(tmp_path: Path, entry: dict[str, Any]) -> None:
    rows = captions(2, 2)
    for number, row in enumerate(rows):
        row |= {"fold": number % 2} if entry else {"split": ("train", "test")[number % 2]}
    [line] = media_held_out(*opened(tmp_path, rows, **entry))
    assert "2 of 2 held-out documents are about media" in line
    assert line.endswith("what was not seen")


def test_rows_of_one_id_are_counted(tmp_path: Path) -> None:
    rows = [{"photo": f"{n}.png", "text": "x", "id": f"r{n % 4}"} for n in range(10)]
    found = find_duplicates(*opened(tmp_path, rows))
    assert found.same_ids == 6
    assert ", 6 have the id of another;" in found.told()
    assert find_duplicates(*opened(tmp_path, captions(4, 2))).same_ids == 0


def test_media_of_rows_of_one_table_that_are_only_scored_are_told_too(tmp_path: Path) -> None:
    rows = captions(4, 5)
    for number, row in enumerate(rows):
        row["split"] = ("train", "train", "train", "train", "test")[number % 5]
    for name in {row["photo"] for row in rows}:
        Image.new("RGB", (8, 8), int(name.split(".")[0])).save(tmp_path / name)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"path": str(tmp_path / "rows.jsonl"), "columns": {"image": "photo"}}
    trained = {**source, "rows": {"split": "train"}, "held_out": 0.0}
    scored = {**source, "rows": {"split": "test"}, "name": "test"}
    run = {"modalities": ["image"], "data": {"sources": [trained]}, "evaluate": {"sources": [scored]}}
    [line] = media_held_out(*open_both(make_run(run), load_plugins()))
    assert line.startswith("test: 4 of 4 held-out documents are about media that others are trained on too")
