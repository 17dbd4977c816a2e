"""Weights that a step has broken are never saved in the place of good ones."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kosmos import OptimizerSpec, hookimpl, resume_run, train_model
from kosmos.checkpoint.folder import committed, step_of
from kosmos.checkpoint.tensors import read_whole
from kosmos.errors import DataError, TrainingError
from kosmos.plugins import Registry
from kosmos.train.broken import first_not_finite
from kosmos.train.loop import Trainer
from support.runs import Listener, rows_of, small_run, ticks_registry

FIRST = "the weight backbone.embedding.weight is not finite"
SPOILED: list[int] = []
"""Calls of the optimizer that break something, from 1, over all of a test."""


class Spoiling(torch.optim.AdamW):
    """Breaks a weight, or what it keeps of one, in some of its steps."""

    calls = 0

    def __init__(self, groups: list[dict[str, Any]], rate: float, what: str) -> None:
        super().__init__(groups, rate)
        self.what = what

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        Spoiling.calls += 1
        if Spoiling.calls in SPOILED:
            named = {n: p for g in self.param_groups for n, p in zip(g["names"], g["params"], strict=True)}
            weight = named["backbone.embedding.weight"]
            with torch.no_grad():
                (weight if self.what == "weight" else self.state[weight][self.what]).view(-1)[-1] = math.nan


def spoiling(groups: list[dict[str, Any]], learning_rate: float, *, what: str = "weight") -> Spoiling:
    return Spoiling(groups, learning_rate, what)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(spoiling=spoiling))
    monkeypatch.setattr(Spoiling, "calls", 0)
    SPOILED.clear()

    class Own:
        KOSMOS_API = 1

        @hookimpl
        def kosmos_optimizers():
            yield OptimizerSpec(name="spoiling", target=f"{__name__}:spoiling", summary="Breaks weights.")

    return ticks_registry(own=Own)


def run(output: Path, *spoiled: int, what: str = "weight", train: Mapping[str, Any] = {}, **over: Any) -> Any:
    SPOILED[:] = spoiled
    optimizer = {"name": "spoiling", "what": what}
    saved = {"checkpoint": {"every_steps": 2, "keep_last": 2}, "evaluate": {"max_documents": 2}}
    return small_run(output, train={"optimizer": optimizer, "schedule": "constant", **train}, **{**saved, **over})


def steps_there(output: Path) -> list[int]:
    return [step_of(checkpoint) for checkpoint in committed(output / "checkpoints")]


def all_finite(output: Path) -> bool:
    every = [read_whole(checkpoint / "tensors") for checkpoint in committed(output / "checkpoints")]
    return bool(every) and all(t.isfinite().all() for one in every for t in one.values() if t.is_floating_point())


def test_a_last_step_that_breaks_weights_ends_the_run_and_is_not_saved(tmp_path, registry):
    with pytest.raises(TrainingError) as caught:
        train_model(run(tmp_path / "run", 6), registry=registry)
    line = str(caught.value)
    assert line.startswith(f"guard: step 6: {FIRST} after the update, so it is not saved; the newest checkpoint is of ")
    assert "step 4; lower train.learning_rate" in line and f"--resume {tmp_path / 'run'}" in line
    assert caught.value.exit_status == 4
    assert steps_there(tmp_path / "run") == [4, 2] and all_finite(tmp_path / "run")
    (row,) = rows_of(tmp_path / "run" / "guards.jsonl")
    assert row == {"step": 6, "kind": "broken_weights", "action": "stop", "weight": FIRST, "documents": []}
    SPOILED.clear()
    assert resume_run(tmp_path / "run", registry=registry).step == 6


def test_a_first_step_at_far_too_high_a_rate_does_not_end_well(tmp_path):
    rate = {"steps": 1, "warmup_steps": 0, "schedule": "constant", "learning_rate": 1e39, "optimizer": "adamw"}
    with pytest.raises(TrainingError, match=r"step 1: the weight .* is not finite .*; no checkpoint was saved before"):
        train_model(small_run(tmp_path / "run", train=rate), registry=ticks_registry())
    assert steps_there(tmp_path / "run") == []


def test_what_the_optimizer_keeps_is_not_saved_broken(tmp_path, registry):
    kept = r"what the optimizer keeps of backbone\.embedding\.weight \(exp_avg_sq\) is NaN"
    with pytest.raises(TrainingError, match=f"step 6: {kept}"):
        train_model(run(tmp_path / "run", 6, what="exp_avg_sq"), registry=registry)
    assert steps_there(tmp_path / "run") == [4, 2] and all_finite(tmp_path / "run")


@pytest.mark.parametrize("at", [4, 5])
def test_leaving_batches_out_does_not_go_on_with_broken_weights(tmp_path, registry, at):
    """Broken just before a save, and one step before."""
    with pytest.raises(TrainingError, match=FIRST):
        train_model(run(tmp_path / "run", at, guard={"non_finite": "skip"}, train={"steps": 20}), registry=registry)
    rows = rows_of(tmp_path / "run" / "guards.jsonl")
    assert [(row["step"], row["action"]) for row in rows] == [({4: 4, 5: 6}[at], "stop")]
    assert steps_there(tmp_path / "run") == {4: [2], 5: [4, 2]}[at] and all_finite(tmp_path / "run")


@pytest.mark.parametrize("at", [4, 8])
def test_a_roll_back_from_a_save_goes_to_weights_that_are_finite(tmp_path, registry, at):
    """In the midst of a run, and behind its last step."""
    said = Listener()
    config = run(tmp_path / "run", at, guard={"non_finite": "roll_back"}, train={"steps": 8})
    assert train_model(config, registry=registry, reporter=said).step == 8
    warned = f"warning: step {at}: {FIRST} after the update, so it is not saved; back to the newest checkpoint"
    assert warned in said.said
    assert [row["step"] for row in rows_of(tmp_path / "run" / "metrics.jsonl")] == [*range(1, 9)]
    assert steps_there(tmp_path / "run") == [8, 6] and all_finite(tmp_path / "run")
    assert [row["action"] for row in rows_of(tmp_path / "run" / "guards.jsonl")] == ["roll_back"]


def test_data_that_fail_behind_broken_weights_go_on_where_they_are(tmp_path, registry, monkeypatch):
    rows, failed = Trainer._rows, []

    def failing(trainer: Trainer, stop: Any) -> Any:
        if trainer.step == 5 and not failed:
            failed.append(trainer.step)
            raise DataError("the disk is gone")
        return rows(trainer, stop)

    monkeypatch.setattr(Trainer, "_rows", failing)
    said = Listener()
    config = run(
        tmp_path / "run", 5, guard={"non_finite": "roll_back"}, train={"steps": 8}, checkpoint={"every_steps": 4}
    )
    with pytest.raises(DataError):
        train_model(config, registry=registry, reporter=said)
    assert any(line.startswith("the data failed after step 5, and step 4 is saved; once") for line in said.said)
    monkeypatch.setattr(Trainer, "_rows", rows)
    train_model(run(tmp_path / "whole", train={"steps": 4}), registry=registry)
    assert steps_there(tmp_path / "run")[0] == steps_there(tmp_path / "whole")[0] == 4
    assert drawn(tmp_path / "run") > drawn(tmp_path / "whole")


def drawn(output: Path) -> int:
    """Documents that were drawn up to the newest checkpoint."""
    state = json.loads((committed(output / "checkpoints")[0] / "state.json").read_text())
    return sum(count for lane in state["data"]["lanes"].values() for count in lane["draws"])


def test_weights_that_break_again_and_again_end_the_run_with_a_good_checkpoint(tmp_path, registry):
    config = run(tmp_path / "run", 4, 6, 8, 10, guard={"non_finite": "roll_back", "at_most": 2})
    with pytest.raises(TrainingError, match=r"going back to step 2 2 times \(guard\.at_most\)"):
        train_model(config, registry=registry)
    assert steps_there(tmp_path / "run") == [2] and all_finite(tmp_path / "run")


def test_a_broken_checkpoint_of_an_older_version_is_passed_over(tmp_path, registry, monkeypatch):
    config = run(tmp_path / "run", 4, guard={"non_finite": "roll_back"}, train={"steps": 4})
    with monkeypatch.context() as older:
        older.setattr(Trainer, "broken", lambda trainer: None)
        train_model(config, registry=registry)
    assert steps_there(tmp_path / "run") == [4, 2] and not all_finite(tmp_path / "run")
    said = Listener()
    assert resume_run(tmp_path / "run", {"train": {"steps": 8}}, registry=registry, reporter=said).step == 8
    assert f"warning: guard: passed over the checkpoint of step 4: {FIRST}" in said.said
    assert steps_there(tmp_path / "run") == [8, 6] and all_finite(tmp_path / "run")


def test_a_closing_score_that_is_no_number_is_a_warning(tmp_path):
    """Weights of 1e38 are finite; what they make is not."""
    rate = {"steps": 1, "warmup_steps": 0, "schedule": "constant", "learning_rate": 1e38, "optimizer": "lion"}
    result = train_model(small_run(tmp_path / "run", train=rate), registry=ticks_registry())
    assert not math.isfinite(result.after.overall.loss)
    assert any(line.startswith("the held-out loss behind step 1 is nan (ticks)") for line in result.warnings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_tensor_that_is_not_finite_is_found(dtype, bad):
    large = torch.full((3, 5), torch.finfo(dtype).max, dtype=dtype)  # whose squares are not finite
    good = [torch.zeros(0), torch.ones(4, dtype=torch.int32), large, torch.randn(7, 9).t(), torch.tensor(2.0)]
    assert first_not_finite(good) is None
    spoiled = torch.zeros(100, dtype=dtype)
    spoiled[77] = bad
    assert first_not_finite([*good, spoiled, torch.tensor([bad])]) == len(good)
    # What an optimizer keeps may be infinite on purpose.
    assert first_not_finite([*good, spoiled], may_overflow=len(good)) == (len(good) if math.isnan(bad) else None)
