"""The snippets of the documentation run: Python, and rows of data."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import Codes, Media, load_run, open_sources
from kosmos.cli import main
from kosmos.data.asked import asked_of
from kosmos.data.sources import open_source
from kosmos.data.sources.opening import open_parts
from kosmos.data.turns import is_chat
from kosmos.errors import DataError
from kosmos.plugins import load_plugins
from kosmos.run_choices import open_choices
from kosmos.run_file import make_run
from kosmos.train.run import train_model
from support.command import environment
from support.pages import Block, blocks
from support.pages import registry as registry


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_snippet_compiles_and_what_it_imports_of_kosmos_is_there(block: Block) -> None:
    tree = ast.parse(block.text, str(block))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kosmos":
            module = importlib.import_module(str(node.module))
            assert [a.name for a in node.names if not hasattr(module, a.name)] == []


SHORTER = {
    '"steps": 300}})': '"steps": 2}, "evaluate": {"max_documents": 8}})',
    '"steps": 300': '"steps": 2',
    '"steps": 30,': '"steps": 2,',
    '"max_documents": 128': '"max_documents": 8',
    "max_documents=64": "max_documents=8",
    "max_new_tokens=40": "max_new_tokens=2",
    "dtype=saved.dtype)": "dtype=saved.dtype, max_new_tokens=2)",
}
"""What would take long, and what is run in its place."""
PARTS = ("file: ", "put: ", "from: ", "board: ", "cells", "own loss")
"""Begin the markers of blocks that are parts of packages, or of the code, or the main module."""
AFTER = {
    "chats": "with_runs",
    "after a run": "with_runs",
    "after a voice": "with_voice",
    "after drawing": "with_drawings",
    "transcripts": "with_transcripts",
    "rotations": "with_rotations",
    "auc": "with_probabilities",
}
"""Markers of blocks that want a run to be there, and the fixtures that make it."""


def shorter(code: str) -> str:
    for long, short in SHORTER.items():
        code = code.replace(long, short)
    return code


def run_block(block: Block) -> None:
    exec(compile(shorter(block.text), str(block), "exec"), {"__name__": "snippet"})


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a photo."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (64, 64), "red").save("photo.png")
    return tmp_path


@pytest.fixture
def with_runs(at_home: Path) -> Path:
    """With a run that has learned from chats, under the names that pages use."""
    asked = {"role": "user", "content": [{"type": "image", "image": "photo.png"}, {"type": "text", "text": "?"}]}
    chat = {"messages": [asked, {"role": "assistant", "content": "red"}]}
    (at_home / "chats.jsonl").write_text(f"{json.dumps(chat)}\n" * 4)
    (at_home / "questions.jsonl").write_text(json.dumps({"question": "2 + 2?", "choices": ["4", "5"], "answer": "A"}))
    small = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48}
    layers = {"data": {"sources": ["chats.jsonl"], "lanes": 1, "workers": 0}, "backbone": small, "trackers": []}
    train_model(make_run(layers, {"modalities": ["image"], "train": {"steps": 1}, "output": "runs/assistant"}))
    shutil.copytree("runs/assistant", "runs/mine")
    return at_home


@pytest.fixture
def with_voice(at_home: Path) -> Path:
    """With a run that learned to say a few codes."""
    small = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48}
    (at_home / "speech.jsonl").write_text(json.dumps({"text": "Hi", "audio": {"codes": [1, 2, 3]}}) + "\n")
    source = {"path": "speech.jsonl", "template": "{text} → [audio]", "held_out": 0.0}
    layers = {"data": {"sources": [source], "lanes": 1, "workers": 0}, "backbone": small, "trackers": []}
    modalities = {"audio": {"codec": "mu-law"}}
    train_model(make_run(layers, {"modalities": modalities, "train": {"steps": 1}, "output": "runs/voice"}))
    return at_home


@pytest.fixture
def with_drawings(at_home: Path) -> Path:
    """With a run that has begun to draw."""
    small = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48}
    segments = [{"text": "draw a 3", "train": False}, {"image": "photo.png", "train": True}]
    (at_home / "rows.jsonl").write_text(f"{json.dumps({'segments': segments})}\n" * 4)
    layers = {"data": {"sources": ["rows.jsonl"], "lanes": 1, "workers": 0}, "backbone": small, "trackers": []}
    modalities = {"image": {"codec": {"name": "pixels", "side": 4}}}
    train_model(make_run(layers, {"modalities": modalities, "train": {"steps": 1}, "output": "runs/draw"}))
    return at_home


@pytest.fixture
def with_transcripts(at_home: Path) -> Path:
    """With recordings whose texts are in files of their names."""
    cue = "1\n00:00:0{} --> 00:00:02{}\nHello\nyou.\n\n2\n00:01:02{} --> 00:01:03{}\nBye.\n"
    said = [{"start": 0.5, "end": 2.0, "text": " Hello you."}, {"start": 62.0, "end": 63.0, "text": " Bye."}]
    files = {
        "talks/a.json": json.dumps({"text": "Hello you. Bye.", "segments": said, "language": "en"}),
        "talks/b.srt": cue.format("0,500", ",000", ",000", ",000"),
        "talks/c.vtt": "WEBVTT\n\n" + cue.format("0.500", ".000 align:start", ".000", ".000"),
        "talks/d.txt": "0.5\t2.0\tHello you.\n62.0\t63.0\tBye.\n",
        "corpus/txt/p1/0.txt": "Hello\nyou.\n",
        "corpus/txt/p2/0.txt": "Bye.",
    }
    media = [f"talks/{name}.flac" for name in "abcd"] + ["corpus/sounds/p1/0.flac", "corpus/sounds/p2/0.flac"]
    for name, text in {**files, **dict.fromkeys(media, "medium")}.items():
        (at_home / name).parent.mkdir(parents=True, exist_ok=True)
        (at_home / name).write_text(text)
    return at_home


@pytest.fixture
def with_rotations(at_home: Path) -> Path:
    """Answers to two questions in two orders each."""
    said = [(241, True), (1_000_241, True), (242, True), (1_000_242, False)]
    lines = [json.dumps({"id": str(number), "is_right": is_right}) for number, is_right in said]
    (at_home / "chosen.jsonl").write_text("\n".join(lines))
    return at_home


@pytest.fixture
def with_probabilities(at_home: Path) -> Path:
    """What lines of answers to questions of yes or no have: of the 4 pairs of a yes and a no one is out of order."""
    said = [(-0.1, -2.0, 0), (-1.0, -0.9, 0), (-0.7, -0.8, 1), (-3.0, -0.1, 1)]
    lines = [{"choices": ["yes", "no"], "log_probabilities": [yes, no], "right": right} for yes, no, right in said]
    (at_home / "chosen.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return at_home


def test_the_area_under_the_curve_is_that_of_the_pairs_in_order(with_probabilities: Path, capsys) -> None:
    run_block(*blocks("python", "auc"))
    areas, precisions = capsys.readouterr().out.splitlines()
    assert areas == "multiclass_auroc {'yes': 0.75, 'no': 0.75}"
    assert precisions.startswith("multiclass_average_precision {'yes': 0.83")


def test_questions_in_several_orders_count_where_all_are_right(with_rotations: Path, capsys) -> None:
    run_block(*blocks("python", "rotations"))
    assert capsys.readouterr().out == "0.5\n"


def test_transcripts_become_rows_as_the_page_says(with_transcripts: Path) -> None:
    times, files = blocks("python", "transcripts")
    known = {"split": "train", "held_out": 0.0, "registry": load_plugins(), "modalities": ("audio",)}
    with pytest.raises(DataError, match=r"segments.*docs: Use your own data, Transcripts with times\)$"):
        open_source("talks/a.json", **known)
    run_block(times)
    source = open_source("talks", **known)
    found = [
        (d.segments[0].source.name, d.segments[0].clip, d.segments[1].text) for d in map(source.document, range(8))
    ]
    both = [((0.5, 2.0), "Hello you."), ((62.0, 63.0), "Bye.")]
    assert found == [(f"{name}.flac", *piece) for name in "abcd" for piece in both]
    with pytest.raises(DataError, match="Transcripts in files of their own"):
        open_source("corpus", **known)
    second = with_transcripts / "corpus/sounds/p2"
    shutil.copy(second / "0.flac", second / "0_mic2.flac")
    (second / "0.flac").rename(second / "0_mic1.flac")
    run_block(files)
    source = open_source("corpus", **known)
    assert [source.document(row).segments[1].text for row in range(2)] == ["Hello you.", "Bye."]
    assert source.document(1).segments[0].source.name == "0_mic1.flac"
    shutil.rmtree("corpus/txt")
    with pytest.raises(SystemExit, match=r"no \*\.flac has the name of one of \*\.txt"):
        run_block(files)


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_snippet_runs(block: Block, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    if block.marker.startswith(PARTS):
        pytest.skip("part of a package, or of the code: tested as such")
    request.getfixturevalue(AFTER.get(block.marker, "at_home"))
    run_block(block)
    if "print(" in block.text:
        assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("block", blocks("python", "cells"), ids=str)
def test_cells_that_are_a_plugin_run_as_the_main_module(block: Block, tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text(shorter(block.text), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "cells.py"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) > 0


def test_a_chat_is_asked_as_the_page_says(with_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["generate", "runs/assistant", "--prompt", "x", "--max-new-tokens", "1"]) == 0
    hint = f"hint: {with_runs / 'chats.jsonl'} holds chats; with --chat the run is asked as they ask\n"
    assert capsys.readouterr().err == hint
    assert main(["generate", "runs/assistant", "--chat", "--prompt", "x", "--max-new-tokens", "1"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["generate", "runs/assistant", "--chat", "--prompt", "<image>x", "--max-new-tokens", "1"]) == 0
    assert capsys.readouterr().err.startswith("hint: <image> in a prompt is read as letters; --image FILE stands")


def test_the_weights_of_a_run_are_one_file_as_the_page_says(with_runs: Path) -> None:
    from safetensors.torch import load_file

    (block,) = [b for b in blocks("python", "after a run") if "save_model" in b.text]
    run_block(block)
    kept, model = load_file(with_runs / "model.safetensors"), load_run(Path("runs/mine")).composition.model
    assert set(kept) <= set(model.state_dict())
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in kept.items())


@pytest.mark.parametrize("block", blocks("json", "rows"), ids=str)
def test_the_rows_of_the_guide_are_documents(block: Block, tmp_path: Path) -> None:
    rows, path, known = *_write(block, tmp_path), ("image", "audio")
    parts = [open_source(path, split=s, registry=load_plugins(), modalities=known) for s in _splits(rows)]
    documents = [part.document(i) for part in parts for i in range(len(part))]
    assert len(documents) == len(rows)
    assert all(any(getattr(segment, "train", False) for segment in d.segments) for d in documents)


@pytest.mark.parametrize("block", blocks("json", "spoken"), ids=str)
def test_the_rows_of_the_guide_that_hold_sounds_to_say_are_learned(block: Block, tmp_path: Path) -> None:
    rows, path = _write(block, tmp_path)
    template = {"template": "{text} → [audio]"} if "→" in block.marker else {}
    modalities = {"audio": {"codec": {"name": "neural-audio", "weights": "models/mimi"}}}
    source = {"path": path, "held_out": 0.0, **template}
    (opened,) = open_sources(
        make_run({"modalities": modalities, "data": {"sources": [source]}}), load_plugins(), "train"
    )
    documents = [opened.document(row) for row in range(len(opened))]
    assert len(documents) == len(rows)
    for document in documents:
        media = [part for part in document.segments if isinstance(part, Media | Codes)]
        assert [part.modality for part in media if part.train] == ["audio"]
        assert not isinstance(document.segments[0], Media | Codes) or not document.segments[0].train


@pytest.mark.parametrize("block", blocks("json", "asked"), ids=str)
def test_the_rows_without_answers_can_be_asked(block: Block, tmp_path: Path) -> None:
    rows, path = _write(block, tmp_path)
    source = open_parts(path, registry=load_plugins(), modalities=("image",), asked=True).whole()
    asked = [asked_of(source.document(i)) for i in range(len(source))]
    assert len(asked) == len(rows) > 1
    assert all(next(prompt.media).modality == "image" and expected is None for prompt, expected in asked)
    assert [is_chat(prompt) for prompt, _ in asked] == [False, False, True, True]


@pytest.mark.parametrize("block", blocks("json", "choices"), ids=str)
def test_the_rows_with_choices_are_questions(block: Block, tmp_path: Path) -> None:
    rows, path = _write(block, tmp_path)
    config = make_run({"modalities": ["image"]})
    (source,) = open_choices(config, load_plugins(), [path], chat=False, max_rows=99, encode=str.encode)
    assert source.incidents == [] and len(source.rows) == len(rows) > 1
    assert len({source.document(number).origin for number in range(len(source))}) == 2 * len(rows)


def _write(block: Block, folder: Path) -> tuple[list[Any], str]:
    """The rows of a block, and a file of them beside their media."""
    for name in re.findall(r'"([\w/]+\.(?:png|jpg|flac))"', block.text):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"medium")
    (folder / "rows.jsonl").write_text(block.text, encoding="utf-8")
    return [json.loads(line) for line in block.text.splitlines()], str(folder / "rows.jsonl")


def _splits(rows: list[Any]) -> list[Any]:
    return ["train", "held_out"] if len(rows) > 1 else ["train"]
