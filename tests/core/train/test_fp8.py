"""Runs whose blocks multiply in 8 bits: they learn as others do, go on exactly, and their weights are like others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import load_run, resume_run, train_model
from kosmos.cli import main
from kosmos.errors import ConfigError
from kosmos.runtime.parallel import Parallel
from kosmos.train.progress import Reporter
from kosmos.train.settings import check_settings
from support.runs import assert_same_tensors, rows_of, small_run, ticks_registry

STEPS = 24
RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")


class Said(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def run(output: Path | None, recipe: str | None, **train: Any) -> Any:
    more = {"steps": STEPS, "fp8": recipe, "precision": "bf16", "learning_rate": 3e-3, "optimizer": "adamw", **train}
    return small_run(output, train=more, checkpoint={"every_steps": STEPS // 2, "keep_last": 9})


def losses(output: Path) -> list[float]:
    return [row["loss"] for row in rows_of(output / "metrics.jsonl")]


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    folder = tmp_path_factory.mktemp("exact") / "run"
    train_model(run(folder, None), registry=ticks_registry())
    return losses(folder)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_learns_as_in_bf16(tmp_path: Path, exact: list[float], recipe: str) -> None:
    said = Said()
    train_model(run(tmp_path / "run", recipe), registry=ticks_registry(), reporter=said)
    assert any(line.startswith("warning: train.fp8: products are rounded as on a GPU") for line in said.lines)
    found = losses(tmp_path / "run")
    assert found != exact
    assert found == pytest.approx(exact, rel=0.05)
    assert found[-1] < 0.8 * found[0]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_goes_on_exactly(tmp_path: Path, recipe: str) -> None:
    steady = {"recipe": recipe, "schedule": "constant"}
    train_model(run(tmp_path / "cut", **steady, steps=3), registry=ticks_registry())
    train_model(run(tmp_path / "whole", **steady, steps=6), registry=ticks_registry())
    resume_run(tmp_path / "cut", {"train": {"steps": 6}}, registry=ticks_registry())
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert_same_tensors(tmp_path / "cut", tmp_path / "whole")


def test_weights_are_those_of_any_run(tmp_path: Path) -> None:
    """They go on without 8 bits, and are scored and exported in bf16."""
    train_model(run(tmp_path / "run", "rowwise", steps=2), registry=ticks_registry())
    loaded = load_run(tmp_path / "run", device="cpu", registry=ticks_registry())
    kinds = {type(m) for m in loaded.composition.model.backbone.blocks.modules() if isinstance(m, torch.nn.Linear)}  # type: ignore[union-attr]
    assert kinds == {torch.nn.Linear}
    resume_run(tmp_path / "run", {"train": {"steps": 4, "fp8": None}}, registry=ticks_registry())
    assert len(losses(tmp_path / "run")) == 4
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "model.safetensors")]) == 0


def test_what_does_not_go_together_is_refused() -> None:
    ranks = Parallel(rank=0, local_rank=0, world_size=2, local_world_size=2)
    with pytest.raises(ConfigError, match=r"train\.fp8: not with train\.precision=fp32"):
        check_settings(run(None, "rowwise", precision="fp32"), ticks_registry(), ranks)
    shared = run(None, "rowwise").model_copy(update={"parallel": small_run(parallel={"tensor": 2}).parallel})
    with pytest.raises(ConfigError, match=r"train\.fp8: not of matrices that ranks share \(parallel\.tensor\)"):
        check_settings(shared, ticks_registry(), ranks)
