"""``evaluate.choices``: questions that offer several answers, scored while a run trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kosmos import load_run, make_run, open_choices, score_choices
from kosmos.cli import main
from kosmos.config import RunConfig
from kosmos.errors import ConfigError, DataError
from kosmos.train.best import values
from kosmos.train.run import resume_run, train_model
from support.runs import Listener, rows_of

FACTS = {"sky": "blue", "grass": "green", "blood": "red", "snow": "white"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rows = [{"prompt": f"The {thing} is", "completion": f" {colour}"} for thing, colour in FACTS.items()] * 8
    (folder / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    colours = [f" {colour}" for colour in FACTS.values()]
    asked: list[dict[str, Any]] = [
        {"query": f"The {thing} is", "choices": colours, "gold": n} for n, thing in enumerate(FACTS)
    ]
    asked.append({"query": "The sea is", "choices": [" wet"]})  # offers nothing
    (folder / "colours.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    return folder


def run_on(data: Path, output: Path, *, held_out: float = 0.25, **evaluate: Any) -> RunConfig:
    return make_run(
        {
            "modalities": [],
            "data": {
                "sources": [str(data / "facts.jsonl")], "tokens_per_pack": 128, "workers": 0, "held_out": held_out,
            },
            "backbone": {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
            "train": {"steps": 12, "warmup_steps": 1, "learning_rate": 0.01, "precision": "fp32"},
            "evaluate": {"every_steps": 4, "choices": [str(data / "colours.jsonl")], **evaluate},
            "trackers": [],
            "output": str(output),
        }
    )  # fmt: skip


def test_what_is_noted_of_a_step_is_what_its_checkpoint_scores(data: Path, tmp_path: Path, capsys) -> None:
    by = "colours.exact_match"
    config = run_on(data, tmp_path / "run", best=by)
    config = make_run(config.model_dump(), {"checkpoint": {"every_steps": 4, "keep_last": 3, "keep_best": True}})
    said = Listener()
    result = train_model(config, reporter=said)
    rows = {row["step"]: row["held_out"] for row in rows_of(tmp_path / "run" / "held_out.jsonl")}
    assert [*rows] == [0, 4, 8, 12]
    for step in (4, 8, 12):
        saved = load_run(tmp_path / "run", step=step)
        encode = saved.composition.tokenizer.encode
        asked = open_choices(
            saved.composition.config, saved.composition.registry, [data / "colours.jsonl"], encode=encode
        )
        scores, left_out = score_choices(saved.composition, asked, workers=0)
        noted = rows[step]["source"]["colours"]
        assert (noted["documents"], noted["exact_match"]) == (4, scores["colours"].accuracy)
        assert noted["loss"] is None and noted["answers"] == 4 and len(left_out) == 1
        assert rows[step]["overall"]["documents"] == rows[step]["source"]["facts"]["documents"] == 8
    shares = {step: row["source"]["colours"]["exact_match"] for step, row in rows.items() if step}
    assert max(shares.values()) > rows[0]["source"]["colours"]["exact_match"]  # it has learned something
    assert result.after.by_source["colours"].exact_match == shares[12]
    best = min(step for step, share in shares.items() if share == max(shares.values()))
    assert load_run(tmp_path / "run", step="best").step == best
    assert any(f"; of colours {100 * shares[8]:.1f} % right" in line for line in said.said)
    noted_bad = rows_of(tmp_path / "run" / "quarantine.jsonl")
    assert [row["source"] for row in noted_bad] == ["colours"]

    assert main(["eval", str(tmp_path / "run"), "--json"]) == 0  # what the run scores
    told = json.loads(capsys.readouterr().out)
    assert told["choices"]["colours"]["accuracy"] == shares[12]
    assert told["by_source"]["facts"]["documents"] == 8
    moved = tmp_path / "moved" / "colours.jsonl"
    moved.parent.mkdir()
    moved.write_text((data / "colours.jsonl").read_text())
    assert main(["eval", str(tmp_path / "run"), f"evaluate.choices.0.path={moved}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["choices"] == told["choices"]
    assert main(["report", str(tmp_path / "run")]) == 0
    assert (
        f"highest held-out exact match of colours {100 * shares[best]:.2f} %" in capsys.readouterr().out or best == 12
    )


def test_nothing_else_need_be_held_out(data: Path, tmp_path: Path, capsys) -> None:
    said = Listener()
    train_model(run_on(data, tmp_path / "run", held_out=0, best="colours.exact_match", patience=9), reporter=said)
    rows = rows_of(tmp_path / "run" / "held_out.jsonl")
    assert [row["held_out"]["overall"]["documents"] for row in rows] == [0] * 4
    assert not [line for line in said.said if "warning" in line or "nan" in line]
    assert any(line.startswith("step 4  held out: of colours ") for line in said.said)
    assert main(["eval", str(tmp_path / "run")]) == 0
    assert "colours" in capsys.readouterr().out


def test_questions_that_a_resumed_run_is_asked_change_nothing_of_which_scoring_is_best(data: Path, tmp_path: Path):
    config = make_run(run_on(data, tmp_path / "run", choices=[]).model_dump(), {"checkpoint": {"keep_best": True}})
    train_model(config)
    before = values(rows_of(tmp_path / "run" / "held_out.jsonl"))
    more = {"train": {"steps": 16}, "evaluate": {"choices": [str(data / "colours.jsonl")]}}
    resume_run(tmp_path / "run", more)
    rows = rows_of(tmp_path / "run" / "held_out.jsonl")
    assert {step: loss for step, loss in values(rows).items() if step <= 12} == before
    assert "colours" in rows[-1]["held_out"]["source"]


@pytest.mark.parametrize(
    ("held_out", "evaluate", "line"),
    [
        (
            0.25,
            {"best": "colours"},
            "evaluate.best: questions have no loss; the figures of evaluate.choices are colours",
        ),
        (
            0,
            {"best": "exact_match"},
            "evaluate.best: nothing is held out; the figures of evaluate.choices are colours.",
        ),
        (0, {"patience": 2}, "evaluate.best: nothing is held out; the figures of evaluate.choices are colours.exact_m"),
        (
            0.25,
            {"best": "colour.exact_match"},
            "evaluate.best: no held-out source is called 'colour'; did you mean col",
        ),
    ],
)
def test_what_questions_do_not_have_is_refused(data: Path, tmp_path: Path, held_out: float, evaluate, line) -> None:
    with pytest.raises(ConfigError) as refused:
        train_model(run_on(data, tmp_path / "run", held_out=held_out, **evaluate))
    assert str(refused.value).startswith(line) and not (tmp_path / "run").exists()


def test_questions_that_are_not_there_or_have_a_taken_name_are_refused(data: Path, tmp_path: Path) -> None:
    paths = [str(data / "colours.jsonl"), str(tmp_path / "gone.jsonl")]
    with pytest.raises(DataError, match=r"^evaluate\.choices\.1: data '.*gone\.jsonl': no such file"):
        train_model(run_on(data, tmp_path / "run", choices=paths))
    with pytest.raises(ConfigError, match=r"what is held out has a source 'facts' too; give it another name \(ev"):
        train_model(run_on(data, tmp_path / "run", choices=[{"path": str(data / "colours.jsonl"), "name": "facts"}]))
