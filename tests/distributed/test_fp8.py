"""Ranks whose blocks multiply in 8 bits take the steps that one process takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import trainings
from support.runs import SMALL, rows_of
from support.torchrun import done, forked

pytestmark = pytest.mark.slow
WAYS: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "fsdp": {"strategy": "fsdp"},
    "sequence": {"sequence": 2},
}


def run(output: Path, parallel: dict[str, Any]) -> dict[str, Any]:
    train = {**SMALL["train"], "precision": "bf16", "fp8": "rowwise_with_gw_hp", "steps": 3, "optimizer": "adamw"}  # type: ignore[dict-item]
    return {**SMALL, "train": train, "parallel": parallel, "evaluate": {"max_documents": 4}, "output": str(output)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[float]]:
    folder = tmp_path_factory.mktemp("fp8")
    entries: list[dict[str, Any]] = [{"world": 1, "run": run(folder / "alone", {})}]
    entries += [{"world": 2, "run": run(folder / name, way)} for name, way in WAYS.items()]
    (folder / "trainings.json").write_text(json.dumps(entries))
    done(forked(2, [trainings.__file__, folder / "trainings.json"]), at_most_s=120)
    return lambda name: [row["loss"] for row in rows_of(folder / name / "metrics.jsonl")]


@pytest.mark.parametrize("name", WAYS)
def test_ranks_take_the_steps_of_one_process(trained: Callable[[str], list[float]], name: str) -> None:
    assert trained(name) == pytest.approx(trained("alone"), rel=1e-2)
