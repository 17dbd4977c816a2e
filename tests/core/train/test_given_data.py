"""Documents that Python gives to a run, and weights that it takes from one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import (
    ConfigError,
    Document,
    Documents,
    Interrupted,
    Reporter,
    Source,
    Text,
    compose_run,
    load_run,
    make_run,
    open_rows,
    resume_run,
    save_run,
    score,
    train_model,
)
from kosmos.cli import main
from kosmos.config import RunConfig
from kosmos.errors import CheckpointError, DataError, QuarantineFull
from kosmos.train.given_twice import given_twice
from support.runs import assert_same_tensors, rows_of, small_run, ticks_registry
from support.ticks import TicksSource

CORE = ticks_registry()


@dataclass
class Sums:
    """Rows in memory."""

    rows: range
    name: str = "additions"
    fails_at: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def document(self, index: int) -> Document:
        number = self.rows[index]
        if number == self.fails_at:
            raise RuntimeError("no such sum")
        return Document(f"sum {number}", (Text(f"{number} + 1 = "), Text(str(number + 1), train=True)))


SOURCES: dict[str, Any] = {"sources": [Sums(range(40))], "held_out": [Sums(range(40, 50))]}


class StopsAt(Reporter):
    def __init__(self, step: int) -> None:
        self.at, self.taken = step, 0

    def step(self, row, steps):
        self.taken = row["step"]

    def wants_stop(self):
        return self.taken == self.at


def run_on(output: Path, **over: Any) -> RunConfig:
    return small_run(output, modalities=[], **over)


def test_a_run_on_documents_in_memory_goes_on_with_them_alone(tmp_path: Path, capsys) -> None:
    whole = train_model(run_on(tmp_path / "whole"), **SOURCES)
    assert {name: found.documents for name, found in whole.after.by_source.items()} == {"additions": 10}
    with pytest.raises(Interrupted):
        train_model(run_on(tmp_path / "cut"), **SOURCES, reporter=StopsAt(3))
    with pytest.raises(DataError, match=r"data 'additions \(given to train_model\)': these documents were given in Py"):
        resume_run(tmp_path / "cut")
    with pytest.raises(CheckpointError, match=r"was made with data\.sources\.0\.documents 40, the run now has 39"):
        resume_run(tmp_path / "cut", sources=[Sums(range(39))], held_out=SOURCES["held_out"])
    resume_run(tmp_path / "cut", **SOURCES)
    assert_same_tensors(tmp_path / "whole", tmp_path / "cut")
    for command in (["eval", str(tmp_path / "whole")], ["train", "--resume", str(tmp_path / "whole"), "--steps", "9"]):
        assert main(command) == 3  # which have no such data, and take no others in their place
        assert "error[data]: data 'additions (given to train_model)': these documents were" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"sources": []}, "sources: there are none; leave it out"),
        ({"sources": "rows.jsonl"}, "sources: expected a list of Sources"),
        ({"sources": [Sums(range(3)), Sums(range(4))]}, "sources: two are called 'additions'"),
        ({"held_out": [Sums(range(3))]}, "held_out: stands beside sources"),
        ({"sources": [Sums(range(3))], "data": {"sources": ["rows.jsonl"]}}, "sources: the run has data.sources too"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(tmp_path: Path, given: dict[str, Any], line: str) -> None:
    config = run_on(tmp_path / "run", data=given.pop("data", {}))
    with pytest.raises(ConfigError) as refused:
        train_model(config, **given)
    assert str(refused.value).startswith(line) and not (tmp_path / "run").exists()


def test_a_model_can_be_looked_at_before_it_is_trained(tmp_path: Path) -> None:
    parts = compose_run(run_on(tmp_path / "run"))
    (row,) = [parts.pack([Sums(range(2)).document(0)])]
    assert parts.tokenizer.decode(row.token_ids.tolist()[1:-1]) == "0 + 1 = 1"
    assert not (tmp_path / "run").exists()


def test_weights_of_ones_own_making_are_a_run(tmp_path: Path, capsys) -> None:
    train_model(run_on(tmp_path / "run"), **SOURCES)
    saved = load_run(tmp_path / "run")
    with torch.no_grad():
        for parameter in saved.composition.model.parameters():
            parameter.mul_(0.5)
    found = score(saved.composition, SOURCES["held_out"]).overall.loss
    assert save_run(saved, tmp_path / "halved") == tmp_path / "halved"
    again = load_run(tmp_path / "halved")
    assert score(again.composition, SOURCES["held_out"]).overall.loss == found
    tensors = [dict(run.composition.model.named_parameters()) for run in (saved, again)]
    assert all(torch.equal(tensor, tensors[1][name]) for name, tensor in tensors[0].items())
    with pytest.raises(
        CheckpointError, match=r"holds weights that were saved by themselves, without the state of an o"
    ):
        resume_run(tmp_path / "halved", **SOURCES)
    begun = run_on(tmp_path / "next", init=str(tmp_path / "halved"))
    assert train_model(begun, **SOURCES).before.overall.loss == pytest.approx(found)
    with pytest.raises(ConfigError, match="is there already"):
        save_run(saved, tmp_path / "halved")
    saved.composition.model.backbone.register_buffer("more", torch.zeros(1))
    with pytest.raises(ConfigError, match=r"save_run: the model has other tensors than its run \(backbone\.more\)"):
        save_run(saved, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_weights_are_not_drawn_in_a_type_that_nobody_has_stated(tmp_path: Path, kind: torch.dtype) -> None:
    train_model(run_on(tmp_path / "run", train={"steps": 1}), **SOURCES)
    torch.set_default_dtype(kind)
    try:
        for made in (lambda: train_model(run_on(tmp_path / "new"), **SOURCES), lambda: load_run(tmp_path / "run")):
            with pytest.raises(ConfigError, match=rf"PyTorch's default type is {kind} \(torch\.set_default_dtype\)"):
                made()
    finally:
        torch.set_default_dtype(torch.float32)
    assert not (tmp_path / "new").exists()


def test_a_share_that_is_stated_is_not_passed_over_beside_sources(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^data\.held_out 0\.2: is of data\.sources, .* give train_model held_out \(Do"
    ):
        train_model(run_on(tmp_path / "run", data={"held_out": 0.2}), sources=SOURCES["sources"])
    run = run_on(tmp_path / "run", data={"held_out": 0.2}, train={"steps": 1, "warmup_steps": 0})
    assert train_model(run, **SOURCES).after.overall.documents == 10
    assert train_model(run_on(tmp_path / "all", data={"held_out": 0}), sources=SOURCES["sources"]).after is None


def test_who_gives_sources_is_told_how_to_hold_some_out(tmp_path: Path) -> None:
    stops = run_on(tmp_path / "run", evaluate={"every_steps": 2, "patience": 1})
    with pytest.raises(
        ConfigError, match=r"^evaluate\.patience: nothing is held out to go by; give held_out beside sour"
    ):
        train_model(stops, sources=SOURCES["sources"])
    scores = run_on(tmp_path / "run", evaluate={"every_steps": 2})
    (line,) = train_model(scores, sources=SOURCES["sources"]).warnings
    assert line.startswith(
        "evaluate.every_steps 2: nothing is held out to be scored; give held_out beside sources (Doc"
    )


def test_a_model_that_a_loop_of_ones_own_has_trained_is_a_run(tmp_path: Path, capsys) -> None:
    composed = compose_run(run_on(tmp_path / "never made"))
    with torch.no_grad():
        for parameter in composed.model.parameters():
            parameter.mul_(0.5)
    found = score(composed, SOURCES["held_out"]).overall.loss
    assert save_run(composed, tmp_path / "own", step=300) == tmp_path / "own"
    loaded = load_run(tmp_path / "own")
    assert (loaded.step, loaded.composition.config.output) == (300, tmp_path / "own")
    assert score(loaded.composition, SOURCES["held_out"]).overall.loss == found
    assert main(["eval", str(tmp_path / "own"), "--max-documents", "4"]) == 0
    with pytest.raises(CheckpointError, match=r"without the state of an optimizer; begin a run with it"):
        resume_run(tmp_path / "own", **SOURCES)
    begun = run_on(tmp_path / "next", init=str(tmp_path / "own"), train={"steps": 1, "warmup_steps": 0})
    assert train_model(begun, **SOURCES).before.overall.loss == pytest.approx(found)
    assert save_run(loaded.composition, tmp_path / "again") == tmp_path / "again"
    assert load_run(tmp_path / "again").step == 0


def test_what_is_not_as_it_was_composed_is_not_saved(tmp_path: Path) -> None:
    composed = compose_run(run_on(tmp_path / "never made"))
    composed.model.backbone.register_buffer("more", torch.zeros(1))
    with pytest.raises(ConfigError, match=r"save_run: the model has other tensors than its run \(backbone\.more\)"):
        save_run(composed, tmp_path / "own")
    assert not (tmp_path / "own").exists()
    with pytest.raises(
        ConfigError, match=r"run: expected a SavedRun, got OmniModel; load_run gives one; a Composition"
    ):
        save_run(composed.model, tmp_path / "own")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_run_trains_wherever_it_is_called(tmp_path: Path, mode) -> None:
    train_model(run_on(tmp_path / "run", train={"steps": 2}), **SOURCES)
    with mode():
        train_model(run_on(tmp_path / "within", train={"steps": 2}), **SOURCES)
    assert_same_tensors(tmp_path / "run", tmp_path / "within")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_is_the_same_within_an_autocast_of_its_caller(tmp_path: Path, precision) -> None:
    run = {"steps": 3, "precision": precision}
    plain = train_model(run_on(tmp_path / "run", train=run), **SOURCES)
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", torch.float16):
        within = train_model(run_on(tmp_path / "within", train=run), **SOURCES)
        with pytest.raises(Interrupted):
            train_model(run_on(tmp_path / "cut", train=run), **SOURCES, reporter=StopsAt(2))
        resumed = resume_run(tmp_path / "cut", **SOURCES)
    assert within.after.overall.loss == resumed.after.overall.loss == plain.after.overall.loss
    for name in ("within", "cut"):
        assert_same_tensors(tmp_path / "run", tmp_path / name)


def test_a_result_tells_what_was_left_out_and_warned_of(tmp_path: Path) -> None:
    config = small_run(tmp_path / "run", data={"sources": [], "quarantine": 1})
    sources = [TicksSource("train", 60, broken=tuple(range(0, 60, 3)))]
    result = train_model(config, sources=sources, registry=CORE)
    assert result.bad == len(rows_of(tmp_path / "run" / "quarantine.jsonl")) > 3
    late = make_run(config.model_dump(), {"output": str(tmp_path / "late"), "train": {"warmup_steps": 50}})
    assert any("warmup_steps" in line for line in train_model(late, sources=sources, registry=CORE).warnings)


SUMS = [Sums(range(40)).document(n) for n in range(40)]
OTHERS = [Sums(range(40, 50)).document(n) for n in range(10)]
LINE = "held_out: {}, so that its scores tell nothing of what was not seen; Documents.split parts documents"


def test_what_is_trained_on_and_held_out_as_well_is_warned_of(tmp_path: Path) -> None:
    sums = Documents("sums", SUMS)
    result = train_model(run_on(tmp_path / "run", train={"steps": 1}), sources=[sums], held_out=[sums])
    assert LINE.format("sums is trained on too (sources: sums)") in result.warnings


@pytest.mark.parametrize(
    ("held_out", "what"),
    [
        (Sums(range(40)), ""),  # of code of one's own, whose documents may cost something
        (Documents("same", SUMS), "same is"),
        (Documents("some", SUMS[:5] + OTHERS[:5]), "some holds 5 of 10 documents that were looked at, which are"),
        (Documents("made again", [Sums(range(40)).document(39), OTHERS[0]]), "made again holds 1 of 2 documents .*"),
        (Documents("others", OTHERS), ""),
        (Documents("called alike", [replace(one, origin=SUMS[n].origin) for n, one in enumerate(OTHERS)]), ""),
    ],
)
def test_so_are_documents_of_another_source(held_out: Source, what: str) -> None:
    said = [*given_twice([Documents("sums", SUMS)], [held_out])]
    assert len(said) == bool(what)
    assert not what or re.match(f"held_out: {what} trained on too", said[0])


def test_so_are_rows_that_were_opened_twice() -> None:
    rows = [{"question": f"{n} + 1", "answer": str(n + 1)} for n in range(40)]
    every, part = (open_rows(make_run({}), rows, split=split, registry=CORE) for split in (None, "held_out"))
    others = open_rows(make_run({}), [{"question": "a", "answer": "b"}] * 2, registry=CORE)
    assert "rows is trained on too (sources: rows)" in next(given_twice([every], [part]))
    assert not [*given_twice([every], [others])]


def test_a_start_that_fails_leaves_its_folder_free(tmp_path: Path) -> None:
    class Fails(Reporter):
        def __init__(self, method: str) -> None:
            self.method = method

        def start(self, run):
            self.fail("start")

        def scored(self, step, scores):
            self.fail("scored")

        def fail(self, method):
            if method == self.method:
                raise KeyError(method)

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    for method in ("start", "scored"):
        with pytest.raises(KeyError, match=method):
            train_model(run_on(tmp_path / "run"), **SOURCES, reporter=Fails(method))
        assert [file.name for file in (tmp_path / "run").iterdir()] == ["notes.txt"]
    train_model(run_on(tmp_path / "run", train={"steps": 1}), **SOURCES)
    new = run_on(tmp_path / "new", trackers=["tensorboard"])
    with pytest.raises(KeyError, match="scored"):
        train_model(new, **SOURCES, reporter=Fails("scored"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("step", [1, 4])
def test_a_mistake_of_a_reporter_costs_no_step(tmp_path: Path, step: int) -> None:
    class Divides(Reporter):
        def step(self, row, steps):
            1 / (row["step"] - step)

    with pytest.raises(ZeroDivisionError):
        train_model(run_on(tmp_path / "run"), **SOURCES, reporter=Divides())
    assert load_run(tmp_path / "run").step == step
    train_model(run_on(tmp_path / "whole"), **SOURCES)
    resume_run(tmp_path / "run", **SOURCES)
    assert_same_tensors(tmp_path / "run", tmp_path / "whole")


def test_a_model_that_a_reporter_has_left_in_evaluation_trains_on(tmp_path: Path) -> None:
    class Looks(Reporter):
        def start(self, run):
            self.model = run.composition.model

        def step(self, row, steps):
            self.model.eval()

        def scored(self, step, scores):
            self.model.eval()

    dropped = {"backbone": {"lora": {"rank": 2, "dropout": 0.5}}, "evaluate": {"every_steps": 2}}
    train_model(run_on(tmp_path / "run", **dropped), **SOURCES)
    train_model(run_on(tmp_path / "looked", **dropped), **SOURCES, reporter=Looks())
    assert_same_tensors(tmp_path / "run", tmp_path / "looked")


def test_a_reporter_gets_every_scoring(tmp_path: Path) -> None:
    class Scores(Reporter):
        def __init__(self) -> None:
            self.losses: dict[int, float] = {}

        def scored(self, step, scores):
            self.losses[step] = scores.overall.loss

    told = Scores()
    train_model(run_on(tmp_path / "run", evaluate={"every_steps": 2}), **SOURCES, reporter=told)
    rows = rows_of(tmp_path / "run" / "held_out.jsonl")
    assert [*told.losses] == [0, 2, 4, 6]
    assert told.losses == pytest.approx({row["step"]: row["held_out"]["overall"]["loss"] for row in rows})


def test_a_small_source_of_which_nothing_can_be_read_ends_the_run(tmp_path: Path) -> None:
    rows = [{"prompt": f"{number} is", "completion": " a number"} for number in range(30)]
    (tmp_path / "good.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "typo.jsonl").write_text(
        "".join(json.dumps({"image": f"{n}.png", "text": "x"}) + "\n" for n in range(7))
    )
    sources = [{"path": str(tmp_path / f"{name}.jsonl"), "weight": 1} for name in ("good", "typo")]
    data = {"sources": sources, "held_out": 0, "workers": 0}
    config = make_run({"modalities": ["image"], "data": data, "train": {"steps": 40}, "output": str(tmp_path / "run")})
    small = {"backbone": {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48}, "trackers": []}
    with pytest.raises(QuarantineFull, match=r"typo: none of its 7 samples can be used; the last"):
        train_model(make_run(config.model_dump(), small))
