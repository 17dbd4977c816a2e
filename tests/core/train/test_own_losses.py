"""Runs whose parts have losses of their own: what is minimized and told, however rows are computed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import RunConfig, TrainingError, make_run
from kosmos.cli import main
from kosmos.train.run import resume_run, train_model
from support.own_losses import HEADED, composed, gradients, registry
from support.runs import assert_same_tensors, rows_of
from support.steps import threads_of_torch

NAMES = ["backbone.places", "streams.ticks.connector.size", "streams.ticks.encoder.guess",
         "streams.ticks.encoder.mixed"]  # fmt: skip


def run(output: Path, **over: Any) -> RunConfig:
    return make_run(HEADED, {"output": str(output)}, over)


def trained(output: Path, *, threads: int = 1, **over: Any) -> list[dict[str, Any]]:
    with threads_of_torch(threads):
        train_model(run(output, **over), registry=registry())
    return rows_of(output / "metrics.jsonl")


def test_a_step_has_the_gradients_of_all_of_it_and_tells_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kosmos.train.loop import Trainer

    seen: list[tuple[list[Any], dict[str, torch.Tensor]]] = []
    whole = Trainer._backward_all

    def noted(trainer: Trainer, rows: Any, batches: Any, targets: int) -> Any:
        found = whole(trainer, rows, batches, targets)
        seen.append((batches, gradients(trainer.model)))
        return found

    monkeypatch.setattr(Trainer, "_backward_all", noted)
    [metrics] = trained(tmp_path / "run", train={"steps": 1, "warmup_steps": 0})
    [(batches, found)] = seen
    model = composed().model
    totals = [model(batch) for batch in batches]
    torch.autograd.backward(sum(losses.total for losses in totals) / metrics["target_tokens"])
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)
    assert list(metrics["module_losses"]) == NAMES
    minimized = sum(float(losses.total.detach()) for losses in totals) / metrics["target_tokens"]
    assert metrics["loss"] + sum(metrics["module_losses"].values()) == pytest.approx(minimized, rel=1e-5)


def test_a_step_without_a_target_learns_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kosmos.train.loop import Trainer
    from kosmos.train.step_sums import _of_modules

    rows, whole, seen = Trainer._rows, Trainer._backward_all, []

    def noted(trainer: Trainer, *arguments: Any) -> Any:
        found = whole(trainer, *arguments)
        seen.extend(gradients(trainer.model).values())
        return found

    monkeypatch.setattr(Trainer, "_rows", lambda trainer, should_stop: (*rows(trainer, should_stop)[:2], 0))
    monkeypatch.setattr(Trainer, "_backward_all", noted)
    trained(tmp_path / "run", train={"steps": 1})
    assert seen and not any(gradient.any() for gradient in seen)
    assert _of_modules([{"streams.ticks.encoder.guess": 2.0}], 0) == {}


def test_rows_at_once_are_rows_one_after_another(tmp_path: Path) -> None:
    at_once = trained(tmp_path / "at-once", threads=2, train={"lanes_at_once": 2, "steps": 3})
    expected = trained(tmp_path / "one", train={"steps": 3})
    for name in ("loss", "module_losses"):
        assert [row[name] for row in at_once] == [row[name] for row in expected]
    assert_same_tensors(tmp_path / "at-once", tmp_path / "one")


def test_a_run_that_goes_on_is_the_run_that_was_not_cut(tmp_path: Path) -> None:
    constant = {"schedule": "constant"}
    whole = trained(tmp_path / "whole", train={**constant, "steps": 4})
    trained(tmp_path / "cut", train={**constant, "steps": 2})
    resume_run(tmp_path / "cut", {"train": {"steps": 4}}, registry=registry())
    rows = rows_of(tmp_path / "cut" / "metrics.jsonl")
    assert [row["module_losses"] for row in rows] == [row["module_losses"] for row in whole]
    assert_same_tensors(tmp_path / "cut", tmp_path / "whole")


def test_recomputation_changes_nothing(tmp_path: Path) -> None:
    plain = trained(tmp_path / "plain", train={"steps": 2})
    again = trained(tmp_path / "again", train={"steps": 2, "gradient_checkpointing": True})
    assert [row["module_losses"] for row in again] == [row["module_losses"] for row in plain]
    assert_same_tensors(tmp_path / "plain", tmp_path / "again")


def test_one_that_is_not_finite_stops_the_run_by_its_name(tmp_path: Path) -> None:
    streams = {"ticks": {"encoder": {"name": "committed", "fault": "infinite"}, "connector": "small"}}
    says = r"step 1: loss [\d.]+, streams\.ticks\.encoder\.guess inf, gradient norm [\d.]+: not finite"
    with pytest.raises(TrainingError, match=says):
        trained(tmp_path / "run", streams=streams)


def test_the_report_tells_the_last_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = trained(tmp_path / "run", train={"steps": 2}, trackers=["tensorboard"])
    assert main(["report", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, value in rows[-1]["module_losses"].items():
        assert any(line.split()[:2] == [name, f"{value:.4f}"] for line in lines), name
    assert main(["report", str(tmp_path / "run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["last_losses"]["module_losses"]
    assert told == pytest.approx(rows[-1]["module_losses"], rel=1e-4)
    assert all(math.isfinite(value) for value in told.values())


def test_without_any_a_row_of_metrics_has_none(tmp_path: Path) -> None:
    streams = {"ticks": {"encoder": "ticks", "connector": "mlp"}}
    [row] = trained(tmp_path / "run", streams=streams, backbone={"name": "decoder"}, train={"steps": 1})
    assert "module_losses" not in row
