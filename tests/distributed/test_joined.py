"""Ranks that join the rows of their lanes, as on GPUs, train as one process does that computes each by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import trainings
from support.runs import SMALL
from support.same import assert_same_run
from support.torchrun import done, forked

pytestmark = pytest.mark.slow
WAYS: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"}, "fsdp": {"strategy": "fsdp"}, "tensor": {"tensor": 2}, "sequence": {"sequence": 2},
}  # fmt: skip
"""Of two ranks, each with two of four lanes, or both with all of them."""


def run(output: Path, parallel: dict[str, Any], at_once: int) -> dict[str, Any]:
    return {
        **SMALL,
        "data": {"tokens_per_pack": 64, "lanes": 4, "look_ahead": 4, "workers": 0, "sources": ["ticks", "sums"]},
        "streams": {"ticks": {"encoder": {"name": "ticks", "ledger": str(output.with_suffix(".ledger"))}}},
        "backbone": {**SMALL["backbone"], "dropout": 0.0},  # type: ignore[dict-item]
        "train": {
            **SMALL["train"],  # type: ignore[dict-item]
            "optimizer": "adamw", "schedule": "constant", "steps": 3, "lanes_at_once": at_once,
        },
        "parallel": parallel,
        "evaluate": {"max_documents": 4},
        "output": str(output),
    }  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("joined")
    entries: list[dict[str, Any]] = [{"world": 1, "run": run(folder / "alone", {}, 1)}]
    entries += [{"world": 2, "joined": 2, "run": run(folder / name, way, 2)} for name, way in WAYS.items()]
    (folder / "trainings.json").write_text(json.dumps(entries))
    done(forked(2, [trainings.__file__, folder / "trainings.json"]), at_most_s=120)
    return lambda name: folder / name


@pytest.mark.parametrize("name", WAYS)
def test_ranks_that_join_rows_train_as_one_process_does(trained: Callable[[str], Path], name: str) -> None:
    assert_same_run(trained(name), trained("alone"), rel=1e-5, weights=1e-4)
