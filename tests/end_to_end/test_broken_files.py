"""Every broken file of the corner collection in a training set of three modalities."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kosmos.cli import main
from support.command import SMALL, kosmos
from support.runs import rows_of

Find = Callable[[str], Path]
STEPS = 8
"""Enough that every document is in a row."""
NO_PICTURES = "corner-video-audio_only.mp4"
"""A usual decoder gives its sound; as a video it has nothing to show."""


def good_files(shared_data: Find, folder: Path) -> Path:
    """A manifest of six real pictures, sounds and films."""
    folder.mkdir()
    rows = []
    for part, kind in (("images/flowers", "image"), ("audio/fsdd", "audio"), ("video", "video")):
        for line in (shared_data(part) / "manifest.jsonl").read_text().splitlines()[:6]:
            row = json.loads(line)
            name = Path(shutil.copy(shared_data(part) / row[kind], folder)).name
            rows.append({"id": row["id"], kind: name, "text": row["text"]})
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, shared_data: Find) -> Path:
    folder = tmp_path_factory.mktemp("corner")
    good, output = good_files(shared_data, folder / "good"), folder / "run"
    data = ("--data", shared_data("corner"), "--data", good)
    rest = ("--steps", STEPS, "data.workers=1", "data.look_ahead=80", "data.tokens_per_pack=768")
    done = kosmos("train", "--modalities", "image,audio,video", *data, "--output", output, *SMALL, *rest)
    assert done.returncode == 0, done.stderr
    bad = len({row["origin"] for row in rows_of(output / "quarantine.jsonl")})
    assert f"{bad} bad samples were left out; each with its cause: {output / 'quarantine.jsonl'}" in done.stderr
    return output


def test_a_file_that_nobody_can_decode_is_in_quarantine_and_one_that_all_can_is_not(
    run: Path, shared_data: Find
) -> None:
    manifest = shared_data("corner") / "manifest.jsonl"
    listed = {row["origin"] for row in rows_of(run / "quarantine.jsonl")}
    for number, row in enumerate(rows_of(manifest), start=1):
        if row["decodes"] == "no" or row["id"] == NO_PICTURES:
            assert f"{manifest}:{number}" in listed, row["id"]
        elif row["decodes"] == "yes":
            assert f"{manifest}:{number}" not in listed, row["id"]
    assert all(origin.startswith(f"{manifest}:") for origin in listed)


def test_each_bad_file_is_listed_once_with_its_cause_in_one_line(run: Path) -> None:
    rows = rows_of(run / "quarantine.jsonl")
    assert len({row["origin"] for row in rows}) == len(rows)
    for row in rows:
        assert set(row) == {"step", "origin", "source", "code", "cause"}
        assert (row["source"], row["code"]) == ("corner", "sample")
        assert len(row["cause"]) > 10
        assert "\n" not in row["cause"]
        assert row["origin"] not in row["cause"]


def test_the_good_files_train(run: Path) -> None:
    rows = rows_of(run / "metrics.jsonl")
    assert len(rows) == STEPS
    assert sum(row["documents"] for row in rows) > 30
    assert set(rows[0]["loss_by_modality"]) == {"image", "audio", "video"}
    assert set(rows[0]["loss_by_source"]) == {"corner", "good"}


def test_a_bad_sample_has_one_name_before_and_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"text": f"line {number}", "split": "train"}) for number in range(8)]
    Path("lines.jsonl").write_text("\n".join([*lines, '{"text": "", "split": "train"}']) + "\n")
    rest = ("data.tokens_per_pack=32", "data.look_ahead=2", "data.workers=0")
    given = ["train", "--modalities", "text", "--data", "lines.jsonl", "--output", "run", "--steps", "9"]
    assert main([*given, *SMALL, *rest]) == 0
    before = {row["origin"] for row in rows_of(tmp_path / "run" / "quarantine.jsonl")}
    assert before == {f"{(tmp_path / 'lines.jsonl').resolve()}:9"}
    capsys.readouterr()
    assert main(["train", "--resume", "run", "--steps", "20"]) == 0
    assert "1 bad sample was left out" in capsys.readouterr().err
    assert {row["origin"] for row in rows_of(tmp_path / "run" / "quarantine.jsonl")} == before
