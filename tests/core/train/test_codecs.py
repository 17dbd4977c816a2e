"""Runs that learn to write media: from training to the file of what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kosmos import (
    CheckpointError,
    Codes,
    ConfigError,
    Document,
    Registry,
    SampleError,
    Text,
    WrittenMedia,
    answered,
    chat_prompt,
    generate_answers,
    generate_text,
    load_run,
    make_run,
    read_run_file,
    resume_run,
    said_parts,
    train_model,
    written_media,
)
from kosmos.commands.generate import app
from kosmos.data.writer import code_marks
from kosmos.evaluate.answer import Generated
from support import spoken_ticks, ticks
from support.runs import SMALL, Listener, rows_of

STEPS = 80


def registry() -> Registry:
    return Registry.from_modules({"ticks": ticks, "spoken": spoken_ticks})


def config(output: Path, **train: Any) -> Any:
    over = {
        "output": str(output),
        "modalities": {"ticks": {"codec": {"name": "steps", "weights": "here", "identity": "nine"}}},
        "data": {"sources": ["spoken"]},
        "train": {"optimizer": "adamw", "learning_rate": 1e-2, "steps": STEPS, **train},
    }
    return make_run(SMALL, over)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("codecs") / "run"
    train_model(config(output), registry=registry())
    return output


def said(run: Path, words: str, **over: Any) -> list[WrittenMedia]:
    saved = load_run(run, registry=registry(), **over)
    answers: list[Generated] = []
    prompt = Document("prompt", (Text(words),))
    generate_text(saved.composition, prompt, max_new_tokens=20, dtype=saved.dtype, on_end=answers.append)
    return written_media(saved.composition, answers[0])


@pytest.mark.parametrize(("words", "first"), [("rising: ", -1), ("falling: ", 1)])
def test_what_was_learned_is_written(trained: Path, words: str, first: int) -> None:
    (medium,) = said(trained, words)
    assert medium.fault == ""
    assert np.frombuffer(medium.content, "<f4").tolist() == (np.linspace(-1, 1, 5) * -first).tolist()


def test_its_tokens_are_scored_as_those_of_texts(trained: Path) -> None:
    first, *_, last = [row for row in rows_of(trained / "metrics.jsonl") if "loss" in row]
    assert first["target_tokens"] > 0 and last["loss"] < first["loss"] / 10


def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    train_model(config(tmp_path / "whole", steps=6, schedule="constant"), registry=registry())
    train_model(config(tmp_path / "parts", steps=3, schedule="constant"), registry=registry())
    resume_run(tmp_path / "parts", {"train": {"steps": 6}}, registry=registry())
    losses = [[row["loss"] for row in rows_of(tmp_path / run / "metrics.jsonl")] for run in ("whole", "parts")]
    assert losses[0] == losses[1] and len(losses[0]) == 6


@pytest.mark.parametrize("codec", [{"identity": "other"}, {"size": 9, "weights": "x", "identity": "other"}])
def test_another_codec_is_refused(trained: Path, codec: dict[str, Any]) -> None:
    over = {"modalities": {"ticks": {"codec": codec}}}
    with pytest.raises(CheckpointError, match=r"another modalities\.ticks\.codec.*give it the options"):
        load_run(trained, registry=registry(), overrides=over)
    with pytest.raises(CheckpointError, match="another codec of ticks; the tokens by which it writes"):
        resume_run(trained, {**over, "train": {"steps": STEPS + 1}}, registry=registry())


def test_a_run_without_its_codec_is_read_and_says_what_it_lacks(trained: Path) -> None:
    over = {"modalities": {"ticks": {"codec": {"weights": "gone"}}}}
    with pytest.warns(UserWarning, match=r"modalities\.ticks\.codec: weights gone: no such folder; what"):
        saved = load_run(trained, registry=registry(), overrides=over)
    spoken = spoken_ticks.SpokenSource("train").document(0)
    with pytest.raises(SampleError, match=r"the run's codec cannot be used \(.*weights gone: no such folder\)"):
        saved.composition.planner.plan(spoken)
    assert saved.composition.planner.plan(ticks.TicksSource("train").document(0))
    with pytest.raises(ConfigError, match="weights gone: no such folder"):
        resume_run(trained, {**over, "train": {"steps": STEPS + 1}}, registry=registry())


def test_its_weights_may_lie_elsewhere(tmp_path: Path) -> None:
    made = config(tmp_path / "run", steps=1)
    made = make_run(made.model_dump(mode="json"), {"modalities": {"ticks": {"codec": {"identity": "of the weights"}}}})
    train_model(made, registry=registry())
    load_run(
        tmp_path / "run", registry=registry(), overrides={"modalities": {"ticks": {"codec": {"weights": "there"}}}}
    )


def test_its_weights_are_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").touch()
    over = {"modalities": {"ticks": {"codec": {"weights": "weights"}}}}
    train_model(make_run(config(tmp_path / "run", steps=1).model_dump(mode="json"), over), registry=registry())
    saved = read_run_file(tmp_path / "run" / "run.yaml")["modalities"]["ticks"]["codec"]
    assert saved["weights"] == str(tmp_path / "weights")


def test_another_codec_than_the_first_run_had_is_told_of(trained: Path, tmp_path: Path) -> None:
    listener = Listener()
    over = {"init": str(trained), "modalities": {"ticks": {"codec": {"name": "steps", "identity": "other"}}}}
    made = make_run(config(tmp_path / "run", steps=1).model_dump(mode="json"), over)
    train_model(made, registry=registry(), reporter=listener)
    assert [line for line in listener.said if line.startswith("warning: modalities.ticks.codec: another than in")]


def test_answers_of_media_have_no_text_to_compare_with(trained: Path) -> None:
    saved = load_run(trained, registry=registry())
    source = spoken_ticks.SpokenSource("held_out")
    assert list(generate_answers(saved.composition, source, max_new_tokens=4, dtype=saved.dtype)) == []


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("kosmos.train.laid_over", "kosmos.train.saved"):
        monkeypatch.setattr(f"{module}.load_plugins", lambda *_: registry(), raising=False)


@pytest.mark.usefixtures("installed")
def test_files_are_made_of_what_was_written(trained: Path, tmp_path: Path) -> None:
    rows = [{"segments": [{"text": f"{word}: ", "train": False}, {"text": "x"}]} for word in ("rising", "falling")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder, data = tmp_path / "media", str(tmp_path / "rows.jsonl")
    asked = [str(trained), "--data", data, "--written", str(folder), "--max-new-tokens", "20"]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0, told
    written = [json.loads(line)["written"] for line in told.stdout.splitlines()]
    assert written == [[{"modality": "ticks", "file": str(folder / f"1-{row}-1.ticks")}] for row in (1, 2)]
    assert [np.frombuffer((folder / f"1-{row}-1.ticks").read_bytes(), "<f4")[0] for row in (1, 2)] == [-1, 1]
    again = CliRunner().invoke(app, asked)
    assert isinstance(again.exception, ConfigError) and "is there and not empty" in str(again.exception)


@pytest.mark.usefixtures("installed")
def test_one_is_told_of_what_was_written(trained: Path, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, [str(trained), "--prompt", "rising: "])
    assert "hint: the answer holds ticks; --written FOLDER makes files of it" in told.stderr
    told = CliRunner().invoke(app, [str(trained), "--prompt", "rising: ", "--written", str(tmp_path / "media")])
    assert f"ticks: written to {tmp_path / 'media' / 'answer-1.ticks'}" in told.stderr
    told = CliRunner().invoke(
        app, [str(trained), "--prompt", "rising: ", "--written", str(tmp_path / "no"), "--max-new-tokens", "3"]
    )
    assert "ticks: is none: it has no end behind 2 codes" in told.stderr and not (tmp_path / "no").exists()


def test_what_was_said_stands_in_the_history_as_it_was_written(trained: Path) -> None:
    saved = load_run(trained, registry=registry())
    answers: list[Generated] = []
    prompt = Document("prompt", (Text("rising: "),))
    generate_text(saved.composition, prompt, max_new_tokens=20, dtype=saved.dtype, on_end=answers.append)
    parts = said_parts(saved.composition, answers[0])
    assert [type(part) for part in parts] == [Codes]
    learned = answered(prompt, parts)
    (plan,) = saved.composition.planner.plan(learned)
    assert plan.token_ids.tolist()[9:-1] == list(answers[0].token_ids)
    told = saved.composition.planner.prompt(chat_prompt("more", history=[("rising: ", parts)])).token_ids.tolist()
    place = told.index(answers[0].token_ids[0])
    assert told[place : place + len(answers[0].token_ids)] == list(answers[0].token_ids)


def test_media_among_texts_are_parts_and_what_is_cut_short_is_none(trained: Path) -> None:
    composition = load_run(trained, registry=registry()).composition
    begin, end, zero, *_ = map(composition.tokenizer.mark_id, code_marks("ticks", 9))
    text = composition.tokenizer.encode("so ")
    ids = (*text, begin, zero, zero, end, *text, begin, zero)
    parts = said_parts(composition, Generated("one", None, "so so ", token_ids=ids))
    assert [part.codes.tolist() if isinstance(part, Codes) else part for part in parts] == [
        Text("so "),
        [0, 0],
        Text("so "),
    ]
