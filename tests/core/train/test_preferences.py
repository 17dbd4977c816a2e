"""Runs that learn by preferences: the better answers become likelier, exactly as before after a stop."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import (
    ConfigError,
    Document,
    Documents,
    Judged,
    compose_run,
    load_run,
    make_run,
    resume_run,
    score,
    train_model,
)
from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import read_whole, shapes
from kosmos.cli import main
from kosmos.compose import make_feed
from kosmos.data.batch import DocumentInfo
from kosmos.errors import CheckpointError, DataError, TrainingError
from kosmos.runtime.parallel import Parallel
from kosmos.train.forecast.memory import memory_of
from kosmos.train.output import RunFolder
from kosmos.train.preferences import DPO, ORPO, SimPO
from kosmos.train.reference import PREFIX
from kosmos.train.replay import steps_taken
from support.pairs import pairs_of
from support.runs import assert_same_tensors, rows_of

SMALL: dict[str, Any] = {
    "backbone": {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
    "data": {"tokens_per_pack": 256, "lanes": 2, "workers": 0},
    "train": {"steps": 8, "warmup_steps": 0, "learning_rate": 2e-3, "optimizer": "adamw", "precision": "fp32"},
    "trackers": [],
}


def preferring(output: Path, objective: Any = "dpo", **over: Any) -> Any:
    return make_run(SMALL, {"output": str(output), "train": {"objective": objective}}, over)


def trained(output: Path, objective: Any = "dpo", **over: Any) -> Any:
    run = preferring(output, objective, **over)
    return train_model(run, sources=[pairs_of("pairs", 60)], held_out=[pairs_of("held", 12, seed=1)])


def losses(output: Path) -> list[float]:
    return [row["loss"] for row in rows_of(output / "metrics.jsonl")]


def judged(better: list[float], worse: list[float], reference: list[float] | None = None) -> Judged:
    """A pair with these losses of its tokens."""
    owner = torch.tensor([0] * len(better) + [1] * len(worse))
    infos = tuple(
        DocumentInfo("pair", "made", ("text",), start, 4, is_rejected=number == 1)
        for number, start in enumerate((0, 4))
    )
    given = None if reference is None else torch.tensor(reference)
    return Judged(torch.tensor([*better, *worse]), owner, infos, given)


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        # Gains: 5 - 3 = 2 of the better, 1 - 1.5 = -0.5 of the worse one.
        (DPO(beta=0.2), -log_sigmoid(0.2 * 2.5)),
        (DPO(beta=0.2, label_smoothing=0.25), -0.75 * log_sigmoid(0.5) - 0.25 * log_sigmoid(-0.5)),
        (DPO(beta=0.2, loss="hinge"), 1 - 0.5),
        (DPO(beta=0.2, loss="ipo"), (2 / 2 - -0.5 / 1 - 1 / 0.4) ** 2),
        (DPO(beta=0.2, sft=2.0), -log_sigmoid(0.5) + 2.0 * 1.5),
        (SimPO(beta=2.0, gamma=0.5), -log_sigmoid(2.0 * (1.5 - 1.5) - 0.5)),
        (
            ORPO(weight=0.5),
            1.5 - 0.5 * log_sigmoid((-1.5 - math.log(1 - math.exp(-1.5))) - (-1.5 - math.log(1 - math.exp(-1.5)))),
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, float) else "",
)
def test_losses_of_a_pair_are_those_of_the_papers(objective: Any, expected: float) -> None:
    reference = [2.0, 3.0, 1.0] if isinstance(objective, DPO) else None
    pair = judged([1.0, 2.0], [1.5], reference)
    assert objective(pair).tolist() == pytest.approx([expected], rel=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"beta": 0}, {"beta": "inf"}, {"label_smoothing": 0.6}, {"loss": "ipo", "label_smoothing": 0.1}]
)
def test_options_out_of_range_are_refused_before_anything_is_left(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"train.objective.*{[*wrong][-1]}"):
        trained(tmp_path / "run", {"name": "dpo", **wrong})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("objective", ["dpo", "simpo", "orpo"])
def test_the_better_answers_become_likelier(tmp_path: Path, objective: str) -> None:
    result = trained(tmp_path / "run", objective, train={"steps": 20})
    assert result.after.overall.loss < 0.7 * result.before.overall.loss
    assert result.after.overall.exact_match == 1.0
    assert result.after.overall.answers == result.after.overall.documents == 12
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert rows[-1]["objective"]["right"] == 1.0
    assert rows[-1]["objective"]["margin"] == pytest.approx(
        rows[-1]["objective"]["better"] - rows[-1]["objective"]["worse"]
    )
    assert not (tmp_path / "run" / "quarantine.jsonl").read_text()


def test_the_first_step_compares_a_model_with_itself(tmp_path: Path) -> None:
    trained(tmp_path / "run", train={"steps": 1})
    (row,) = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert row["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert row["objective"]["margin"] == pytest.approx(0, abs=1e-4)
    assert row["documents"] < row["target_tokens"] / 6  # a pair is one document, with two answers to learn


@pytest.mark.parametrize(
    "over", [{"train": {"fp8": "rowwise", "precision": "bf16"}}, {"train": {"gradient_checkpointing": True}}], ids=str
)
def test_the_reference_is_computed_as_the_model_is(tmp_path: Path, over: dict[str, Any]) -> None:
    """Or a model would be compared with how it is rounded."""
    run = preferring(tmp_path / "run", backbone={"width": 64, "ffn_width": 64}, train={"steps": 1, **over["train"]})
    train_model(run, sources=[pairs_of("pairs", 60)])
    assert rows_of(tmp_path / "run" / "metrics.jsonl")[0]["loss"] == pytest.approx(math.log(2), abs=1e-7)


def test_a_pair_that_memory_does_not_hold_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be cut, so smaller parts are no way on."""

    def too_large(*given: Any, **named: Any) -> Any:
        raise torch.OutOfMemoryError("tried to allocate more than there is")

    monkeypatch.setattr("kosmos.model.decoder.Decoder.forward", too_large)
    with pytest.raises(TrainingError, match="step 1: "):
        train_model(preferring(tmp_path / "run", data={"lanes": 1}), sources=[pairs_of("pairs", 60)])


def test_operations_of_the_reference_are_counted(tmp_path: Path) -> None:
    for name in ("dpo", "simpo"):
        trained(tmp_path / name, name, train={"steps": 2})
    dpo, simpo = (rows_of(tmp_path / name / "metrics.jsonl")[-1]["flops"] for name in ("dpo", "simpo"))
    assert dpo == pytest.approx(4 / 3 * simpo, rel=1e-3)


@pytest.mark.parametrize("lora", [False, True], ids=["whole", "lora"])
def test_a_run_that_goes_on_takes_the_same_steps(tmp_path: Path, lora: bool) -> None:
    over: dict[str, Any] = {"backbone": {"lora": {"rank": 2}}} if lora else {}
    trained(tmp_path / "whole", **over)
    trained(tmp_path / "cut", checkpoint={"every_steps": 3, "keep_last": 9}, **over)
    for step in (6, 8):
        (tmp_path / "cut" / "checkpoints" / f"step-{step:08}").rename(tmp_path / f"gone-{step}")
    resume_run(tmp_path / "cut", sources=[pairs_of("pairs", 60)], held_out=[pairs_of("held", 12, seed=1)])
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert_same_tensors(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.parametrize("lora", [False, True], ids=["whole", "lora"])
def test_what_is_told_before_a_run_counts_the_reference(tmp_path: Path, lora: bool) -> None:
    over: dict[str, Any] = {"backbone": {"lora": {"rank": 2}}} if lora else {}
    trained(tmp_path / "run", train={"steps": 2}, **over)
    tensors = load_newest(tmp_path / "run" / "checkpoints").tensors
    numbers = sum(math.prod(shape) for name, shape in shapes(tensors).items() if name.startswith(PREFIX))
    composition = compose_run(preferring(tmp_path / "none", **over))
    memory = memory_of(composition, Parallel(), torch.float32)
    assert memory.reference_bytes == 4 * numbers > 0
    assert memory.held_bytes > memory.weights_bytes + memory.gradients_bytes + memory.state.total


def test_the_documents_of_a_step_are_found_again(tmp_path: Path) -> None:
    trained(tmp_path / "run", train={"steps": 3})
    composition = compose_run(preferring(tmp_path / "none"))
    (step,) = steps_taken(RunFolder(tmp_path / "run"), make_feed(composition, [pairs_of("pairs", 60)]), 2, 2)
    row = rows_of(tmp_path / "run" / "metrics.jsonl")[1]
    assert step.other == ""
    assert (len(step.documents), sum(document.tokens for document in step.documents)) == (
        row["documents"],
        row["tokens"],
    )


def test_under_lora_the_reference_is_the_updates_alone(tmp_path: Path) -> None:
    """It shares what the run does not train, and its own are not those that were trained since."""
    trained(tmp_path / "run", backbone={"lora": {"rank": 2}})
    tensors = load_newest(tmp_path / "run" / "checkpoints").tensors
    names = [name for name in shapes(tensors) if name.startswith(PREFIX)]
    assert names
    assert all("low_rank" in name for name in names)
    now, then = read_whole(tensors, "model."), read_whole(tensors, PREFIX)
    assert all(not then[name].any() for name in then if name.endswith("low_rank_b"))  # as they are drawn
    assert any(now[name].any() for name in then if name.endswith("low_rank_b"))


def test_the_reference_is_the_run_that_one_begins_with(tmp_path: Path) -> None:
    trained(tmp_path / "first", "orpo")
    trained(tmp_path / "second", init=str(tmp_path / "first"), train={"steps": 2})
    first = read_whole(load_newest(tmp_path / "first" / "checkpoints").tensors, "model.")
    then = read_whole(load_newest(tmp_path / "second" / "checkpoints").tensors, PREFIX)
    assert then
    assert [name for name, tensor in then.items() if not torch.equal(tensor, first[name])] == []


def test_a_saved_run_is_used_as_any_other(tmp_path: Path) -> None:
    """It scores the better answers as texts, and needs no reference."""
    trained(tmp_path / "run")
    saved = load_run(tmp_path / "run")
    scores = score(saved.composition, [pairs_of("held", 12, seed=1)], workers=0)
    assert scores.overall.documents == 12
    assert math.isfinite(scores.overall.perplexity)
    assert all("reference" not in name for name, _ in saved.composition.model.named_parameters())


@pytest.mark.parametrize("other", ["dpo", {"name": "simpo", "beta": 1.0}, None], ids=str)
def test_a_run_that_goes_on_keeps_its_objective(tmp_path: Path, other: Any) -> None:
    """Or scores of two would be compared, and the best of both taken."""
    trained(tmp_path / "run", "simpo", train={"steps": 2})
    given = {"sources": [pairs_of("pairs", 60)], "held_out": [pairs_of("held", 12, seed=1)]}
    with pytest.raises(CheckpointError, match=r"another train\.objective \(name simpo\)"):
        resume_run(tmp_path / "run", {"train": {"objective": other, "steps": 4}}, **given)
    resume_run(tmp_path / "run", {"train": {"steps": 3}}, **given)
    assert len(losses(tmp_path / "run")) == 3


def test_a_model_that_has_learned_nothing_is_doubted(tmp_path: Path) -> None:
    assert any("drawn at random" in line for line in trained(tmp_path / "first", train={"steps": 2}).warnings)
    dropping = {"backbone": {"dropout": 0.1}, "init": str(tmp_path / "first")}
    second = trained(tmp_path / "second", train={"steps": 2}, **dropping).warnings
    assert [line for line in second if "train.objective" in line] == [line for line in second if "by dropout" in line]
    assert any("by dropout" in line for line in second)


def test_what_an_objective_tells_is_in_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(tmp_path / "run", train={"steps": 3})
    assert main(["report", str(tmp_path / "run")]) == 0
    right = rows_of(tmp_path / "run" / "metrics.jsonl")[-1]["objective"]["right"]
    assert f"  objective right {right:>25.4f}" in capsys.readouterr().out


def test_documents_without_a_worse_one_are_bad_samples_of_such_a_run(tmp_path: Path) -> None:
    pair = pairs_of("pairs", 1).document(0)
    alone = Documents("alone", [Document("a", pair.segments)])
    with pytest.raises(DataError, match="no worse answer"):
        train_model(preferring(tmp_path / "run"), sources=[alone])


@pytest.mark.parametrize(
    ("over", "says"), [({"train": {"z_loss": 1e-4}}, "z_loss"), ({"train": {"objective": "dpoo"}}, "did you mean dpo")]
)
def test_settings_that_do_not_go_together_are_refused(tmp_path: Path, over: dict[str, Any], says: str) -> None:
    with pytest.raises(Exception, match=says):
        train_model(make_run(SMALL, {"output": str(tmp_path / "run"), "train": {"objective": "dpo"}}, over),
                    sources=[pairs_of("pairs", 20)])  # fmt: skip
