"""A model that learns to draw: from rows with pictures to the files of what it drew."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kosmos import (
    Codes,
    Document,
    Generated,
    Media,
    Text,
    compose_run,
    generate_text,
    load_run,
    make_run,
    open_sources,
    train_model,
    written_media,
)
from kosmos.cli import main
from kosmos.plugins import load_plugins
from kosmos_vision.codecs.pixels import PixelCodec
from support.pages import Block, blocks

SIDE = 6
SMALL = {
    "streams": {"image": {"encoder": {"model": "test_vit", "image_size": 32}}},
    "backbone": {"name": "decoder", "width": 48, "layers": 2, "heads": 2, "ffn_width": 64},
}
DIGITS = {
    1: "......|..#...|.##...|..#...|.###..|......",
    3: "......|.###..|...#..|..##..|...#..|.###..",
    7: "......|.####.|....#.|...#..|..#...|..#...",
}


def pixels_of(digit: int) -> np.ndarray:
    rows = [[255 if at == "#" else 0 for at in row] for row in DIGITS[digit].split("|")]
    return np.array(rows, np.uint8)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four of each digit, one of which holds codes in place of a picture."""
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    lines = []
    for digit in DIGITS:
        Image.fromarray(pixels_of(digit)).save(tmp_path / f"{digit}.png")
        codes = (pixels_of(digit) // 255).reshape(SIDE // 2, 2, SIDE // 2, 2).transpose(0, 2, 1, 3).reshape(-1, 4)
        for picture in (*[f"{digit}.png"] * 3, {"codes": (codes @ [1, 2, 4, 8]).tolist()}):
            segments = [{"text": f"draw a {digit}", "train": False}, {"image": picture, "train": True}]
            lines.append(json.dumps({"segments": segments}))
    (tmp_path / "digits.jsonl").write_text("\n".join(lines))
    return tmp_path / "digits.jsonl"


def test_a_model_draws_the_digits_that_it_is_asked_for(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, drawn = tmp_path / "run", tmp_path / "drawn"
    config = make_run(
        {
            "modalities": {"image": {"codec": {"name": "pixels", "side": SIDE, "block": 2, "levels": 2}}},
            "data": {
                "sources": [{"path": str(rows), "held_out": 0}], "tokens_per_pack": 128, "lanes": 1, "workers": 0,
            },
            "train": {
                "steps": 150, "warmup_steps": 2, "precision": "fp32", "optimizer": "adamw", "learning_rate": 5e-3,
            },
            "trackers": [], "output": str(run),
        },
        SMALL,
    )  # fmt: skip
    train_model(config)
    assert len([file for file in (tmp_path / "cache" / "codes").rglob("*") if file.is_file()]) == len(DIGITS)

    saved = load_run(run)
    codec = PixelCodec(side=SIDE, block=2, levels=2)
    for digit in DIGITS:
        answers: list[Generated] = []
        prompt = Document("asked", (Text(f"draw a {digit}"),))
        generate_text(saved.composition, prompt, max_new_tokens=16, dtype=saved.dtype, on_end=answers.append)
        (medium,) = written_media(saved.composition, answers[0])
        assert (medium.modality, medium.fault, medium.suffix) == ("image", "", ".png")
        assert medium.codes.tolist() == codec.encode(Media("image", pixels_of(digit))).tolist()

    capsys.readouterr()
    asked = ["--prompt", "draw a 3", "--max-new-tokens", "16", "--written", str(drawn)]
    assert main(["generate", str(run), *asked]) == 0
    (file,) = drawn.iterdir()
    assert f"image: written to {file}" in capsys.readouterr().err
    with Image.open(file) as picture:
        assert np.array_equal(np.asarray(picture), pixels_of(3))


def test_a_run_whose_answers_are_media_is_scored_without_bits_a_byte_and_tells_where_it_wrote_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    for digit in DIGITS:
        Image.fromarray(pixels_of(digit)).save(tmp_path / f"{digit}.png")
    lines = [json.dumps({"text": f"a {digit}", "image": f"{digit}.png"}) for digit in DIGITS]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    data = {
        "sources": [{"path": str(tmp_path / "rows.jsonl"), "template": "{text} → [image]", "held_out": 0.5}],
        "tokens_per_pack": 64, "lanes": 1, "workers": 0,
    }  # fmt: skip
    codec = {"name": "pixels", "side": SIDE, "block": 2, "levels": 2}
    given = {
        "modalities": {"image": {"codec": codec}}, "data": data, "trackers": [], "output": str(tmp_path / "run"),
        "train": {"steps": 1, "precision": "fp32"},
    }  # fmt: skip
    train_model(make_run(given, SMALL))
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["overall"]
    assert scores["documents"] >= 1 and scores["bits_per_byte"] is None
    asked = ["--prompt", "a 3", "--max-new-tokens", "1", "--written", str(tmp_path / "drawn")]
    assert main(["generate", str(tmp_path / "run"), *asked]) == 0
    assert "the answer holds no image" in capsys.readouterr().err


@pytest.mark.parametrize("block", blocks("json", "drawn"), ids=str)
def test_the_pictures_of_the_guide_are_learned_as_tokens(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    for name in re.findall(r'"(\w+/\w+\.png)"', block.text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels_of(7)).save(tmp_path / name)
    (tmp_path / "rows.jsonl").write_text(block.text)
    template = block.marker.partition(": ")[2]
    source = {"path": str(tmp_path / "rows.jsonl"), "held_out": 0.0, **({"template": template} if template else {})}
    codec = {"name": "pixels", "side": SIDE, "block": 2, "levels": 2}
    config = make_run({"modalities": {"image": {"codec": codec}}, "data": {"sources": [source]}}, SMALL)
    (opened,) = open_sources(config, load_plugins(), "train")
    documents = [opened.document(row) for row in range(len(opened))]
    assert len(documents) == len(block.text.splitlines())
    planner = compose_run(config).planner
    for document in documents:
        assert sum(isinstance(part, Media | Codes) and part.train for part in document.segments) == 1
        (plan,) = planner.plan(document)
        assert plan.train.sum() >= 2 + SIDE**2 // 4
