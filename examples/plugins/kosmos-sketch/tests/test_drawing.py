"""A model learns to draw: from a run to a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kosmos import (
    Composition,
    ConfigError,
    Document,
    Generated,
    Mark,
    Media,
    SampleError,
    Text,
    generate_texts,
    load_run,
    make_run,
    train_model,
)
from kosmos_sketch.drawing import draw, sketch_in
from kosmos_sketch.pgm import read_pgm
from kosmos_sketch.samples import ALL, SIDE, Shown, SketchesSource, sketch

SETTINGS = {
    "modalities": ["sketch"],
    "backbone": {"name": "decoder", "width": 64, "layers": 2, "heads": 2},
    "train": {"steps": 250, "optimizer": "adamw", "learning_rate": 0.006, "precision": "fp32"},
    "data": {"workers": 0, "tokens_per_pack": 1024},
    "evaluate": {"max_documents": 8},
    "trackers": [],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "sketches"
    train_model(make_run(SETTINGS, {"output": str(folder)}))
    return folder


def test_what_is_drawn_is_what_was_asked_for(run: Path) -> None:
    saved = load_run(run)
    answers: list[Generated] = []
    generate_texts(
        saved.composition, [Document(str(shown), (Text(str(shown)),)) for shown in ALL],
        max_new_tokens=60, dtype=saved.dtype, on_end=answers.append,
    )  # fmt: skip
    assert [answer.text for answer in answers] == [""] * len(ALL)  # marks are no text
    overlaps = [overlap(answer, saved.composition, shown) for shown, answer in zip(ALL, answers, strict=True)]
    assert sum(overlaps) > 0.4 * len(ALL)  # 0.6 as a rule; a sketch of another kind overlaps by 0.15


def overlap(answer: Generated, composition: Composition, shown: Shown) -> float:
    """Black pixels that a sketch has with the right one, of those that either has; 0 where it is none."""
    try:
        picture = sketch_in(answer, composition)
    except SampleError:
        return 0.0
    black, right = picture < 128, sketch(shown) < 128
    return float((black & right).sum() / (black | right).sum()) if black.shape == (SIDE, SIDE) else 0.0


def test_the_command_writes_a_file_and_no_second_one_over_it(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.pgm"
    draw(run, "a large circle, middle", file)
    assert np.count_nonzero(read_pgm(file) < 128) > 10
    with pytest.raises(ConfigError, match="is there already"):
        draw(run, "a large circle, middle", file)


def test_every_other_document_is_drawn() -> None:
    source = SketchesSource("held_out")
    described, drawn = (source.document(index).segments for index in (0, 1))
    assert isinstance(described[0], Media) and isinstance(described[1], Text) and described[1].train
    assert isinstance(drawn[0], Text) and not drawn[0].train
    assert all(isinstance(mark, Mark) and mark.train for mark in drawn[1:])


def test_what_is_held_out_was_never_drawn_and_everything_is_described() -> None:
    sources = [SketchesSource(split, size=2000) for split in ("train", "held_out")]
    drawn = [{text_of(source.document(index)) for index in range(1, 2000, 2)} for source in sources]
    assert list(map(len, drawn)) == [32, 8]
    assert not drawn[0] & drawn[1]
    for source in sources:
        assert {text_of(source.document(index)) for index in range(0, 2000, 2)} == set(map(str, ALL))


def text_of(document: Document) -> str:
    return next(segment.text for segment in document.segments if isinstance(segment, Text))
