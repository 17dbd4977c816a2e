"""A model learns to draw: from a run to a file."""

from __future__ import annotations

from pathlib import Path

from kosmos import (
    Document,
    Generated,
    Media,
    Text,
    WrittenMedia,
    generate_texts,
    load_run,
    make_run,
    train_model,
    written_media,
)
from kosmos_sketch.pgm import read_pgm
from kosmos_sketch.samples import ALL, SIDE, DrawingsSource, Shown, SketchesSource, sketch

SETTINGS = {
    "modalities": {"sketch": {"codec": "sketch-codes"}},
    "backbone": {"name": "decoder", "width": 64, "layers": 2, "heads": 2},
    "train": {"steps": 250, "optimizer": "adamw", "learning_rate": 0.006, "precision": "fp32"},
    "data": {"workers": 0, "tokens_per_pack": 512, "sources": [{"path": "drawings"}]},
    "evaluate": {"max_documents": 8},
    "trackers": [],
}


def test_what_is_drawn_is_what_was_asked_for(tmp_path: Path) -> None:
    train_model(make_run(SETTINGS, {"output": str(tmp_path / "run")}))
    saved = load_run(tmp_path / "run")
    answers: list[Generated] = []
    generate_texts(
        saved.composition, [Document(str(shown), (Text(str(shown)),)) for shown in ALL],
        max_new_tokens=60, dtype=saved.dtype, on_end=answers.append,
    )  # fmt: skip
    assert [answer.text for answer in answers] == [""] * len(ALL)  # codes are no text
    written = [written_media(saved.composition, answer) for answer in answers]
    overlaps = [overlap(media, shown) for shown, media in zip(ALL, written, strict=True)]
    assert sum(overlaps) > 0.4 * len(ALL)  # 0.66 as a rule; a sketch of another kind overlaps by 0.11


def overlap(media: list[WrittenMedia], shown: Shown) -> float:
    """Black pixels that a sketch has with the right one, of those that either has; 0 where it is none."""
    if not media or media[0].fault:
        return 0.0
    black, right = read_pgm(media[0].content) < 128, sketch(shown) < 128
    return float((black & right).sum() / (black | right).sum()) if black.shape == (SIDE, SIDE) else 0.0


def test_what_is_learned_is_the_words_of_a_sketch_and_the_sketch_of_words() -> None:
    described, drawn = (source("held_out").document(1).segments for source in (SketchesSource, DrawingsSource))
    assert isinstance(described[0], Media) and isinstance(described[1], Text)
    assert isinstance(drawn[0], Text) and isinstance(drawn[1], Media)
    assert [segment.train for segment in (*described, *drawn)] == [False, True, False, True]


def test_what_is_held_out_was_never_drawn_and_everything_is_described() -> None:
    drawn = [words_of(DrawingsSource(split, size=1000)) for split in ("train", "held_out")]
    assert list(map(len, drawn)) == [32, 8]
    assert not drawn[0] & drawn[1]
    for split in ("train", "held_out"):
        assert words_of(SketchesSource(split, size=1000)) == set(map(str, ALL))


def words_of(source: SketchesSource | DrawingsSource) -> set[str]:
    segments = (segment for index in range(len(source)) for segment in source.document(index).segments)
    return {segment.text for segment in segments if isinstance(segment, Text)}
