"""Questions of what a run was trained on are warned of, by their files and by their media."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from kosmos.cli import main
from kosmos.plugins import load_plugins
from kosmos.run_choices import open_choices
from kosmos.run_file import make_run
from kosmos.run_overlap import asked_and_trained, trained_sources
from kosmos.train.held_out_elsewhere import held_out_elsewhere

COLOURS = ("red", "green", "blue", "black")


def write(file: Path, rows: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.fixture
def trained(tmp_path: Path) -> str:
    """Rows of which the last is held out."""
    for colour in COLOURS:
        Image.new("RGB", (8, 8), colour).save(tmp_path / f"{colour}.png")
    splits = ["train", "train", "train", "test"]
    rows = [
        {"image": f"{colour}.png", "text": colour, "split": split}
        for colour, split in zip(COLOURS, splits, strict=True)
    ]
    return write(tmp_path / "rows.jsonl", rows)


def asked(folder: Path, *colours: str, name: str = "asked.jsonl") -> str:
    rows = [{"image": f"{colour}.png", "choices": list(COLOURS), "answer": colour} for colour in colours]
    return write(folder / name, rows)


def warnings(trained: str, *paths: str) -> list[str]:
    """As of ``kosmos eval``, and the same as a run that begins has them."""
    config = make_run({"modalities": ["image"], "data": {"sources": [trained]}, "evaluate": {"choices": [*paths]}})
    registry = load_plugins()
    questions = open_choices(config, registry, paths, encode=str.encode)
    sources = [*trained_sources(config, registry)]
    found = [*asked_and_trained(config, questions, paths, sources)]
    assert found == [*held_out_elsewhere(config, sources, questions)]
    return found


def test_questions_about_media_that_are_trained_on_are_warned_of(trained: str, tmp_path: Path) -> None:
    path = asked(tmp_path, "red", "red", "green", "black")
    (line,) = warnings(trained, path, asked(tmp_path, "black", name="held_out.jsonl"))
    assert line == (
        f"choices {path!r}: 2 of the media that its questions are about are those of documents of the run's source "
        "rows, which is trained on"
    )


def test_questions_of_files_of_a_source_are_warned_of_once(trained: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "manifest.jsonl", [{"text": "a"}, {"text": "b"}])
    path = write(folder / "asked.jsonl", [{"question": "a?", "choices": ["a", "b"], "answer": 0}])
    other = asked(tmp_path, "black", name="other.jsonl")
    (line,) = warnings(str(folder), path, other)
    assert line == f"choices {path!r}: shares files with the run's source {folder}, and may have been trained on"
    copy = tmp_path / "copy"
    copy.mkdir()
    moved = write(copy / Path(trained).name, [{"question": "a?", "choices": ["a", "b"], "answer": 0}])
    assert warnings(trained, moved) == []
    Path(trained).unlink()
    (line,) = warnings(trained, moved)
    assert line.startswith(f"choices {moved!r}: may be the run's source {trained}, moved or copied, which was trained")


SMALL = "backbone.width=32 backbone.layers=1 backbone.heads=2 backbone.ffn_width=48 data.workers=0 trackers=[]".split()


def test_eval_and_a_run_that_begins_say_so(trained: str, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, said = asked(tmp_path, "red"), "1 of the media that its questions are about are those of documents"
    of_run = ["train", "--modalities", "image", "--data", trained, "--steps", "1", "--output", "run", *SMALL]
    assert main([*of_run, "train.precision=fp32", "train.device=cpu", f"evaluate.choices=[{path}]"]) == 0
    assert f"warning: choices {path!r}: {said}" in capsys.readouterr().err
    assert main(["eval", "run", "--choices", path, "--workers", "0"]) == 0
    assert f"warning: choices {path!r}: {said}" in capsys.readouterr().err
    for colours, count in ((("red", "green", "black"), 2), (("black",), 0)):  # black is held out
        other = write(tmp_path / "other.jsonl", [{"image": f"{colour}.png", "text": colour} for colour in colours])
        assert main(["eval", "run", "--data", other, "--workers", "0"]) == 0
        about = f"{count} of the media that its documents are about are those of documents of the run's source rows"
        assert (f"warning: data {other!r}: {about}, which is trained on" in capsys.readouterr().err) == bool(count)
    for own in (trained, "rows"):
        assert main(["eval", "run", "--data", own, "--workers", "0"]) == 0
        assert "trained on" not in capsys.readouterr().err
