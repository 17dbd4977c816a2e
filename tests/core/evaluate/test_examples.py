"""Examples in front of questions are decoded where other samples are, and tell two media from one."""

from __future__ import annotations

import json
import wave
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kosmos import Media, Text, make_run
from kosmos.compose import Composition, compose
from kosmos.data.choices import ChoiceSource
from kosmos.data.shots import is_same
from kosmos.evaluate.choices import score_choices
from kosmos.evaluate.score import ScoringStopped
from kosmos.plugins import load_plugins
from kosmos.run_choices import open_choices
from support.faulty import Unlucky


def lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def asked(file: str, number: int, **more: object) -> dict[str, Any]:
    return {"image": file, "question": "Dark?", "choices": ["yes", "no"], "answer": number % 2, **more}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Composition:
    folder = tmp_path_factory.mktemp("examples")
    config = {
        "modalities": ["image"], "data": {"sources": [str(folder)], "tokens_per_pack": 96},
        "backbone": {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
        "train": {"precision": "fp32", "hang_s": 10}, "trackers": [], "output": str(folder / "run"),
    }  # fmt: skip
    return compose(make_run(config), load_plugins())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(9):
        Image.new("RGB", (8, 8), (20 * number, 9, 9)).save(tmp_path / f"{number}.png")
    return tmp_path


def opened(parts: Composition, entry: Mapping[str, Any]) -> ChoiceSource:
    (source,) = open_choices(parts.config, parts.registry, [entry], encode=parts.tokenizer.encode, chat=False)
    return source


@pytest.fixture
def source(parts: Composition, folder: Path) -> ChoiceSource:
    """Two questions, and the three that may be examples."""
    own = lines(folder / "asked.jsonl", [asked(f"{n}.png", n) for n in range(2)])
    pool = lines(folder / "pool.jsonl", [asked(f"{n}.png", n) for n in range(3, 6)])
    return opened(parts, {"path": str(own), "shots": 2, "shots_from": str(pool)})


def shown(source: ChoiceSource, place: int) -> list[str]:
    return [medium.source.name for medium in source.question(place).media if isinstance(medium.source, Path)]


def unlucky(parts: Composition, fates: Mapping[str, str]) -> Composition:
    route = parts.planner.routes["image"]
    routes = {**parts.planner.routes, "image": replace(route, processor=Unlucky(route.processor, fates))}
    return replace(parts, planner=replace(parts.planner, routes=routes))


@pytest.mark.parametrize("place", range(2))
def test_an_example_that_ends_the_process_costs_no_question(parts: Composition, source: ChoiceSource, place: int):
    first = shown(source, 0)[place]
    scores, (incident,) = score_choices(unlucky(parts, {first: "exit"}), [source], workers=1)
    assert scores[source.name].documents == 2
    assert incident.cause.startswith("is no example in front of other questions: its decoder died")
    assert all(first not in shown(source, place) for place in range(2))


def test_progress_is_told_before_each_example_and_a_stop_is_heeded(parts: Composition, source: ChoiceSource) -> None:
    told: list[str] = []
    few = unlucky(parts, dict.fromkeys(["3.png", "4.png", "5.png"], "ValueError"))
    _, incidents = score_choices(few, [source], workers=0, at=lambda phase, **more: told.append(phase))
    # Broken ones give no row, and are told all the same. None is left, so that each question is left out, too.
    assert told.count("choosing examples") >= 2 and told.count("reading examples") >= 3
    assert sum("is no example" in one.cause for one in incidents) == 3

    source.broken_drawn = None
    source.pool.broken.clear()  # type: ignore[union-attr]
    asked_at: list[str] = []

    def stop() -> bool:
        asked_at.append(told[-1])
        return told[-1] == "reading examples"

    with pytest.raises(ScoringStopped):
        score_choices(parts, [source], workers=0, at=lambda phase, **more: told.append(phase), should_stop=stop)
    assert "choosing examples" in asked_at and source.broken_drawn is None  # and the next scoring looks again


def test_a_row_that_cannot_be_read_is_no_twin_and_costs_no_question(parts: Composition, folder: Path) -> None:
    own = lines(folder / "asked.jsonl", [asked(f"{n}.png", n, id=f"q{n}") for n in range(2)])
    rows = [asked("absent.png", 0, id="q0"), *(asked(f"{n}.png", n) for n in range(3, 6))]
    source = opened(parts, {"path": str(own), "shots": 2, "shots_from": str(lines(folder / "pool.jsonl", rows))})
    scores, _ = score_choices(parts, [source], workers=0)
    assert scores[source.name].documents == 2


def test_rows_that_are_only_numbered_alike_are_other_questions(parts: Composition, folder: Path) -> None:
    own = lines(folder / "asked.jsonl", [asked(f"{n}.png", n, id=n) for n in range(6)])
    pool = lines(folder / "pool.jsonl", [asked(f"{n + 6}.png", n, id=n) for n in range(3)])
    source = opened(parts, {"path": str(own), "shots": 3, "shots_from": str(pool)})
    assert [sorted(shown(source, place)[:3]) for place in range(6)] == [["6.png", "7.png", "8.png"]] * 6


def test_files_that_differ_in_their_middle_alone_are_two(tmp_path: Path) -> None:
    for name, loud in (("one", 9), ("same", 9), ("other", 8)):
        sound = np.zeros(120_000, np.int16)
        sound[50_000:70_000] = loud
        with wave.open(str(tmp_path / f"{name}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16_000)
            file.writeframes(sound.tobytes())
    one, same, other = ((Media("audio", tmp_path / f"{n}.wav"), Text("?")) for n in ("one", "same", "other"))
    assert is_same(one, same) and not is_same(one, other)
    held = (Media("audio", (tmp_path / "other.wav").read_bytes()), Text("?"))
    assert is_same(held, other) and not is_same(held, one)
