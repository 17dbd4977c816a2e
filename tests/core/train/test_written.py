"""``evaluate.generate``: answers that the model writes each time a run scores what is held out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import MetricSpec, compose_run, hookimpl, load_run, make_run
from kosmos.cli import main
from kosmos.config import RunConfig
from kosmos.errors import ConfigError, Interrupted, PluginError
from kosmos.plugins import Registry
from kosmos.train.best import measure_of, values
from kosmos.train.measure import Measure, measured
from kosmos.train.output import RunFolder
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from kosmos.train.whole_model import WholeModel
from support import ticks
from support.runs import Listener, rows_of, small_run, ticks_registry

FACTS = {"sky": "blue", "grass": "green", "blood": "red", "snow": "white"}
LONGEST = 8


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rows = [{"prompt": f"The {thing} is", "completion": f" {colour}"} for thing, colour in FACTS.items()] * 8
    (folder / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": f"No {n} asks."}) + "\n" for n in range(16)))
    return folder


def run_on(file: Path, output: Path, **evaluate: Any) -> RunConfig:
    generate = {"documents": 5, "max_new_tokens": LONGEST}
    metrics = ["word_error_rate", {"name": "bleu", "order": 1}]
    return small_run(
        output,
        modalities=[],
        data={"sources": [str(file)], "held_out": 0.25, "workers": 0},
        train={"steps": 12, "learning_rate": 0.01},
        evaluate={"every_steps": 4, "generate": generate, "metrics": metrics, **evaluate},
        checkpoint={"every_steps": 4, "keep_last": 3},
    )


def scorings(output: Path) -> dict[int, dict[str, Any]]:
    return {row["step"]: row["held_out"] for row in rows_of(output / "held_out.jsonl")}


def test_what_is_noted_of_a_step_is_what_its_checkpoint_writes(data: Path, tmp_path: Path, capsys) -> None:
    said = Listener()
    result = train_model(
        run_on(data / "facts.jsonl", tmp_path / "run", best="facts.word_error_rate"), reporter=said
    )  # fmt: skip
    noted = scorings(tmp_path / "run")
    assert [*noted] == [0, 4, 8, 12]
    for step in (4, 8, 12):
        asked = ["--generate", "5", "--max-new-tokens", str(LONGEST), "--step", str(step), "--json"]
        assert main(["eval", str(tmp_path / "run"), *asked]) == 0
        written = json.loads(capsys.readouterr().out)["generated"]["facts"]
        assert noted[step]["generated"]["facts"] == pytest.approx(written, rel=1e-5)
    rates = {step: told["generated"]["facts"]["word_error_rate"] for step, told in noted.items()}
    assert noted[0]["generated"]["facts"]["cut"] == 5  # weights that nobody trained end no answer
    assert len({*rates.values()}) > 1 and noted[12]["generated"]["facts"]["documents"] == 5
    assert result.before.generated["facts"]["word_error_rate"] == rates[0]
    assert result.after.generated == noted[12]["generated"]
    assert any(line.startswith("step 8 ") and f"word_error_rate {rates[8]:.4g}" in line for line in said.said)

    best = min((step for step in rates if step), key=lambda step: (rates[step], step))
    assert load_run(tmp_path / "run", step="best").step == best
    assert main(["checkpoint", "ls", str(tmp_path / "run")]) == 0
    assert f"facts word error rate {rates[best]:.4g} best" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["held_out_best"]
    assert (told["step"], told["lower_is_better"]) == (best, True)
    assert main(["eval", str(tmp_path / "run"), "evaluate.generate=3"]) == 2
    assert "evaluate.generate.documents: has no effect on a trained run; give --generate" in capsys.readouterr().err


def test_a_run_that_goes_on_tells_what_it_wrote_before_and_stops_early_by_it(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    before = train_model(run_on(data / "facts.jsonl", run, metrics=[], every_steps=None)).before
    more = {"metrics": ["word_error_rate"], "every_steps": 1, "best": "facts.word_error_rate", "patience": 1}
    said = Listener()
    resumed = resume_run(
        run, {"train": {"steps": 40, "learning_rate": 1e-9}, "evaluate": {**more, "least_gain": 0.5}}, reporter=said
    )
    assert resumed.before.generated == before.generated
    assert [*before.generated["facts"]][:3] == ["documents", "cut", "exact_match"]
    assert 12 < resumed.step < 40
    assert any("stopped early" in line and "word error rate of facts" in line for line in said.said)


def test_a_model_that_is_whole_is_lent_without_a_copy() -> None:
    config = small_run(streams={"ticks": {"freeze": True}}, backbone={"lora": {"rank": 2}})
    made = compose_run(config, registry=ticks_registry())
    wanted = {name: p.requires_grad for name, p in made.model.named_parameters()}
    whole = WholeModel(made, torch.device("cpu"))
    with whole.lent() as first:
        assert first.model is not made.model and not first.model.training and made.model.training
        places = {name: p.data_ptr() for name, p in first.model.named_parameters()}
        assert places == {name: p.data_ptr() for name, p in made.model.named_parameters()}
        assert all(p.requires_grad for p in first.model.parameters())
    with whole.lent() as again:
        assert again is first
    assert {name: p.requires_grad for name, p in made.model.named_parameters()} == wanted


@pytest.mark.parametrize(
    ("file", "evaluate", "line"),
    [
        ("facts", {"best": "facts.bleu", "metrics": []}, r"evaluate\.best: facts has no 'bleu'; there are los"),
        ("facts", {"best": "facts.word_eror_rate"}, r"evaluate\.best: facts has no 'word_eror_rate'; did you mean wor"),
        ("facts", {"best": "bleu"}, r"evaluate\.best: no held-out source is called 'bleu'; did you mean facts\.bleu\?"),
        ("texts", {}, r"evaluate\.generate: no held-out document has an answer"),
        ("facts", {"metrics": [{"name": "bleu", "order": 1}, "bleu"]}, r"evaluate\.metrics: bleu stands there twice"),
        ("facts", {"generate": 0}, r"evaluate\.generate\.documents: .*greater than or equal to 1"),
        ("facts", {"generate": {"documents": 1, "stop": ""}}, r"evaluate\.generate\.stop: .*an empty text"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_or_compared_is_refused(
    data: Path, tmp_path: Path, file: str, evaluate: dict[str, Any], line: str
) -> None:
    with pytest.raises(ConfigError, match=line):
        train_model(run_on(data / f"{file}.jsonl", tmp_path / "run", **evaluate))
    assert not (tmp_path / "run").exists()


def test_a_metric_that_is_not_installed_is_refused_before_the_first_step(data: Path, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="'blue'"):
        train_model(run_on(data / "facts.jsonl", tmp_path / "run", metrics=["blue"]))
    assert not (tmp_path / "run").exists()


class Failing:
    """A plugin whose metric fails at its second call."""

    KOSMOS_API = 1

    @staticmethod
    @hookimpl
    def kosmos_metrics():
        yield MetricSpec(name="failing", target=f"{__name__}:failing", summary="Fails.")


def failing() -> Callable[[list[str], list[str]], float]:
    calls = iter((0.5,))
    return lambda predictions, references: next(calls, None)  # type: ignore[return-value]


def test_a_metric_that_fails_costs_itself_and_nothing_else(data: Path, tmp_path: Path) -> None:
    said = Listener()
    registry = Registry.from_modules({"ticks": ticks, "failing": Failing})  # type: ignore[dict-item]
    config = run_on(data / "facts.jsonl", tmp_path / "run", metrics=["failing", "word_error_rate"])
    result = train_model(config, registry=registry, reporter=said)
    assert result.step == 12
    written = {step: told["generated"]["facts"] for step, told in scorings(tmp_path / "run").items()}
    assert [step for step, figures in written.items() if "failing" in figures] == [0]
    assert all("word_error_rate" in figures for figures in written.values())
    (warned,) = (line for line in said.said if "without it" in line)  # of three scorings
    why = "facts: metric failing gave NoneType, expected a number"
    assert warned == f"warning: {why}; such a scoring is without it"


class Odd:
    """A plugin whose metric gives no number at its second call, and one that is called like a figure."""

    KOSMOS_API = 1

    @staticmethod
    @hookimpl
    def kosmos_metrics():
        yield MetricSpec(name="odd", target=f"{__name__}:odd", summary="Now and then no number.")
        yield MetricSpec(name="cut", target=f"{__name__}:odd", summary="Called like a figure.")


def odd() -> Callable[[list[str], list[str]], float]:
    calls = iter((0.5, math.nan, math.inf))
    return lambda predictions, references: next(calls, 0.25)


class NeverFinite:
    """A plugin whose metric never gives a number."""

    KOSMOS_API = 1

    @staticmethod
    @hookimpl
    def kosmos_metrics():
        yield MetricSpec(name="never", target=f"{__name__}:never", summary="Never a number.")


def never() -> Callable[[list[str], list[str]], float]:
    return lambda predictions, references: math.nan


def test_that_what_a_run_compares_by_is_never_a_number_is_said_once(data: Path, tmp_path: Path) -> None:
    registry = Registry.from_modules({"ticks": ticks, "never": NeverFinite})  # type: ignore[dict-item]
    config = run_on(data / "facts.jsonl", tmp_path / "run", metrics=["never"], best="facts.never", patience=1)
    result = train_model(config, registry=registry)
    assert result.step == 12
    (said,) = (line for line in result.warnings if "metric never gave nan" in line)
    assert said.endswith("pass over it, and where every scoring is such none of them does anything")


def test_what_is_no_finite_number_counts_nowhere_and_a_run_goes_on_from_it(data: Path, tmp_path: Path) -> None:
    registry = Registry.from_modules({"ticks": ticks, "odd": Odd})  # type: ignore[dict-item]
    run, said = tmp_path / "run", Listener()
    train_model(run_on(data / "facts.jsonl", run, metrics=["odd"], best="facts.odd"), registry=registry, reporter=said)
    noted = {step: told["generated"]["facts"].get("odd") for step, told in scorings(run).items()}
    assert noted == {0: 0.5, 4: None, 8: None, 12: 0.25}
    so = "evaluate.best names it, so such a scoring counts for nothing: evaluate.patience, checkpoint.keep_best and"
    assert [line for line in said.said if f"warning: facts: metric odd gave nan; {so}" in line] != []
    lines = (run / "held_out.jsonl").read_text().replace('"exact_match_standard_error"', '"odd2": null, "odd3"')
    (run / "held_out.jsonl").write_text(lines)  # as versions without that check have it
    resumed = resume_run(run, {"train": {"steps": 13}}, registry=registry)
    assert resumed.step == 13 and "odd2" not in resumed.before.generated["facts"]
    with pytest.raises(ConfigError, match=r"^evaluate\.metrics\.0: cut is what a figure"):
        train_model(run_on(data / "facts.jsonl", tmp_path / "other", metrics=["cut"]), registry=registry)


@pytest.mark.parametrize("fewer", [{"documents": 3}, {"max_new_tokens": 6}])
def test_answers_that_are_written_otherwise_compare_with_none_before(data: Path, tmp_path: Path, fewer) -> None:
    run, by = tmp_path / "run", "facts.word_error_rate"
    first = run_on(data / "facts.jsonl", run, best=by, metrics=["word_error_rate"])
    train_model(make_run(first.model_dump(mode="json"), {"checkpoint": {"keep_best": True}}))
    resume_run(run, {"train": {"steps": 24}, "evaluate": {"generate": fewer}})
    rows = rows_of(run / "held_out.jsonl")
    now = {row["step"] for row in rows if row["held_out"]["generate"] == rows[-1]["held_out"]["generate"]}
    assert {16, 20, 24} <= now <= {12, 16, 20, 24}
    assert {*values(rows, measure_of(RunFolder.open(run)))} == now
    assert load_run(run, step="best").step in now


class Stopping(Reporter):
    """Wants the run to stop once it has been asked some times."""

    asked = 0

    def wants_stop(self) -> bool:
        self.asked += 1
        return self.asked > 40


def test_who_stops_a_run_does_not_wait_for_what_it_writes(data: Path, tmp_path: Path) -> None:
    config = run_on(data / "facts.jsonl", tmp_path / "run", generate={"documents": 8, "max_new_tokens": 10**6})
    with pytest.raises(Interrupted, match="stopped at step 0"):
        train_model(config, reporter=(stopping := Stopping()))
    assert stopping.asked < 400


def test_directions_are_told_by_the_scorings() -> None:
    generated = {"a": {"documents": 3, "word_error_rate": 0.5, "bleu": 0.1}}
    rows = [{"step": 4, "held_out": {"generated": generated, "lower_is_better": ["word_error_rate"]}}, {"step": 5}]
    metrics = measured(rows)
    assert metrics == {"word_error_rate": True, "bleu": False}
    assert Measure.of("a.word_error_rate", metrics) == Measure("a", "word_error_rate", lower=True)
    assert Measure.of("a.word_error_rate") == Measure("a.word_error_rate")  # a source may be called so
    assert Measure.of("v1.bleu", metrics).best == "highest held-out bleu of v1"
    assert Measure.of("bleu", metrics) == Measure("bleu") and Measure.of(".bleu", metrics) == Measure(".bleu")
    assert Measure.of("a.bleu", metrics).figure(rows[0]["held_out"]) == (0.1, 3)


def test_a_bare_number_is_the_documents() -> None:
    found = make_run({"evaluate": {"generate": 7}}).evaluate.generate
    assert found is not None and (found.documents, found.max_new_tokens, found.stop) == (7, 256, [])
    laid = make_run({"evaluate": {"generate": 7}}, {"evaluate": {"generate": {"stop": "\n"}}}).evaluate.generate
    assert laid is not None and (laid.documents, laid.stop) == (7, ["\n"])
