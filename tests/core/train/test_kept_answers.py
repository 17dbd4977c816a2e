"""``OUTPUT/answers``: what the model wrote at each scoring."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kosmos import TrackerSpec, hookimpl, make_run
from kosmos.cli import main
from kosmos.config import RunConfig
from kosmos.errors import ConfigError
from kosmos.train.early import EarlyStopping
from kosmos.train.kept_answers import KeptAnswers
from kosmos.train.run import resume_run, train_model
from kosmos.train.shown_answers import LONGEST, SHOWN, first_few, markdown_table
from support.runs import rows_of, small_run, ticks_registry

FACTS = {"sky": "blue", "grass <b>": "green", "blood": "red", "snow": "white"}


class Keeping:
    """A tracker that keeps the answers that it is given."""

    seen: list[tuple[str, int]] = []  # noqa: RUF012 (the run makes the instance)

    def __init__(self, output: Path, run: Mapping[str, Any]) -> None:
        self.seen.clear()

    def log(self, row: Mapping[str, Any]) -> None:
        if "held_out" in row:
            self.seen.append(("row", row["step"]))

    def log_answers(self, rows: Sequence[dict[str, Any]]) -> None:
        self.seen.append(("answers", rows[0]["step"]))
        rows[0].clear()

    def close(self) -> None: ...


class Plugin:
    KOSMOS_API = 1

    @staticmethod
    @hookimpl
    def kosmos_trackers():
        yield TrackerSpec(name="keeping", target=f"{__name__}:Keeping", summary="Keeps answers.")


def run_on(folder: Path, **evaluate: Any) -> RunConfig:
    facts = folder / "facts.jsonl"
    rows = [{"prompt": f"The {thing} is", "completion": f" {colour}"} for thing, colour in FACTS.items()] * 8
    facts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    generate = {"documents": 5, "max_new_tokens": 8}
    return small_run(
        folder / "run",
        modalities=[],
        data={"sources": [str(facts)], "held_out": 0.25, "workers": 0},
        train={"steps": 4, "learning_rate": 0.01},
        evaluate={"every_steps": 2, "generate": generate, "metrics": ["word_error_rate"], **evaluate},
        checkpoint={"every_steps": 2, "keep_last": 3},
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    config = make_run(run_on(folder).model_dump(mode="json"), {"trackers": ["keeping", "tensorboard"]})
    assert not train_model(config, registry=ticks_registry(plugin=Plugin)).warnings
    assert Keeping.seen == [(what, step) for step in (0, 2, 4) for what in ("row", "answers")]
    return folder / "run"


def texts_of(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (run / "answers").iterdir()}


def test_the_kept_answers_are_those_of_the_figures(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = {row["step"]: row["held_out"]["generated"]["facts"] for row in rows_of(whole / "held_out.jsonl")}
    assert {*texts_of(whole)} == {f"step-{step:08d}.jsonl" for step in figures}
    for step, noted in figures.items():
        file = whole / "answers" / f"step-{step:08d}.jsonl"
        assert main(["score", str(file), "--metric", "word_error_rate", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["generated"]["facts"] == pytest.approx(noted, rel=1e-5)
    rows = rows_of(file)
    assert [row["expected"] for row in rows] == [f" {FACTS[row['prompt'][4:-3]]}" for row in rows] and len(rows) == 5
    assert all({*row["scores"]} == {"exact_match", "word_error_rate"} and row["step"] == 4 for row in rows)
    wrong = sum(row["scores"]["word_error_rate"] for row in rows) / 5  # one word each
    assert wrong == pytest.approx(figures[4]["word_error_rate"])


def test_steps_that_are_taken_again_have_their_answers_once(whole: Path, tmp_path: Path) -> None:
    run = shutil.copytree(whole, tmp_path / "run")
    before = texts_of(run)
    shutil.rmtree(run / "checkpoints" / "step-00000004")
    (run / "answers" / "step-00000003.jsonl").write_text("of a step that is not scored any more\n")
    (run / "answers" / "step-00000004.jsonl").write_text("cut sho")
    resume_run(run, registry=ticks_registry(plugin=Plugin))
    assert texts_of(run) == before
    shutil.rmtree(run / "checkpoints" / "step-00000004")
    resume_run(run, {"evaluate": {"generate": {"kept": 2}}}, registry=ticks_registry(plugin=Plugin))
    last = before.pop("step-00000004.jsonl")
    assert {**texts_of(run)} == {**before, "step-00000004.jsonl": b"".join(last.splitlines(True)[:2])}
    KeptAnswers(run / "answers").forget(-1)  # nothing was saved, and the first scoring comes again too
    assert texts_of(run) == {}


def test_a_branch_has_the_answers_up_to_its_step(whole: Path, tmp_path: Path) -> None:
    assert main(["checkpoint", "branch", str(whole), str(tmp_path / "new"), "--step", "2"]) == 0
    assert texts_of(tmp_path / "new").items() == texts_of(whole).items() - {
        ("step-00000004.jsonl", texts_of(whole)["step-00000004.jsonl"])
    }


def test_the_report_has_the_first_and_the_last_answers_to_the_same_documents(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(whole), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["answers"]
    assert (found["first"], found["last"], found["kept"]) == (0, 4, 3)
    first, last = (rows_of(whole / "answers" / f"step-{step:08d}.jsonl")[:3] for step in (0, 4))
    for told, one, other in zip(found["sources"]["facts"], first, last, strict=True):
        assert (told["document"], told["first"], told["last"]) == (one["document"], one["answer"], other["answer"])
    assert main(["report", str(whole)]) == 0
    assert "    step 4 " in capsys.readouterr().out
    assert main(["report", str(whole), str(whole), "--csv", "-"]) == 0
    assert ",answers." not in capsys.readouterr().out


def test_none_are_kept_where_none_are_wanted_and_how_many_changes_no_comparison(tmp_path: Path) -> None:
    config = run_on(tmp_path, generate={"documents": 2, "max_new_tokens": 4, "kept": 0})
    train_model(make_run(config.model_dump(mode="json"), {"train": {"steps": 1}}))
    assert not (tmp_path / "run" / "answers").exists()
    (how, *_) = (row["held_out"]["generate"] for row in rows_of(tmp_path / "run" / "held_out.jsonl"))
    assert "kept" not in how  # as rows of versions without it have it
    by = {"best": "facts.word_error_rate"}
    stops = [EarlyStopping(run_on(tmp_path, generate={"documents": 2, "kept": n}, **by).evaluate) for n in (0, 9)]
    assert stops[0].written == stops[1].written


def test_a_new_run_does_not_take_the_answers_of_another(tmp_path: Path) -> None:
    config = run_on(tmp_path)
    (tmp_path / "run" / "answers").mkdir(parents=True)
    (tmp_path / "run" / "answers" / "mine.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="holds answers and no run"):
        train_model(config)


def test_a_full_disk_costs_the_answers_and_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    said: list[str] = []
    monkeypatch.setattr("kosmos.train.kept_answers.replacing", full)
    KeptAnswers(tmp_path / "answers").write([{"step": 3}], said.append)
    assert said and "these answers are not kept and the run goes on" in said[0]


def test_texts_of_data_are_letters_in_tensorboard(whole: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(whole / "tensorboard"))
    events.Reload()
    shown = events.Tensors("answers/facts/text_summary")
    assert [event.step for event in shown] == [0, 2, 4]
    assert b"<" not in shown[-1].tensor_proto.string_val[0].replace(b"<br>", b"")


def test_a_table_shows_a_few_short_texts_as_they_are() -> None:
    evil = "<img src=x> ![a](http://b/c) | *d*\n`e`\x1b[2J"
    row = {"source": "a", "document": "a:1", "prompt": "p" * 5000 + "?", "answer": evil}
    cells = first_few([row] * 20)["a"]
    assert len(cells) == SHOWN and len(cells[0][2]) < LONGEST + 5 and cells[0][2].endswith("?")
    last = markdown_table(cells[:1]).splitlines()[-1]
    assert last.count("|") == 6 and "<br>" in last
    assert not {*"<>![]()*`\x1b"} & {*last.replace("<br>", "")}


def _columns(answers: bool, monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Any]:
    wandb = pytest.importorskip("wandb")
    from kosmos.train.trackers import WeightsAndBiases

    monkeypatch.setenv("WANDB_MODE", "disabled")
    tracker = WeightsAndBiases(folder, {}, answers=answers)
    logged: list[Any] = []
    log: Callable[..., None] = lambda row, step: logged.append((step, row))  # noqa: E731
    monkeypatch.setattr(tracker.run, "log", log)
    tracker.log_answers([{"step": 4, "source": "a", "document": "a:1", "prompt": "Why?", "answer": "So."}])
    tracker.close()
    assert all(isinstance(row["answers"], wandb.Table) for _, row in logged)
    return [(step, row["answers"].data) for step, row in logged]


def test_weights_and_biases_has_texts_of_data_where_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _columns(False, monkeypatch, tmp_path) == []
    assert _columns(True, monkeypatch, tmp_path) == [(4, [["a", "a:1", "Why?", "", "So."]])]
