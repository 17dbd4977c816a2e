"""Ranks that learn by preferences, each with a share of the model to compare with, train as one process does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import trainings
from support.pairs import pairs_of
from support.runs import SMALL, rows_of
from support.same import assert_same_run
from support.torchrun import done, forked

pytestmark = pytest.mark.slow
WAYS: dict[str, dict[str, Any]] = {"ddp": {"strategy": "ddp"}, "fsdp": {"strategy": "fsdp"}, "tensor": {"tensor": 2}}
LORA = {"lora": {"rank": 4}}


def run(output: Path, parallel: dict[str, Any], *, steps: int = 3, **backbone: Any) -> dict[str, Any]:
    return {
        **SMALL,
        "modalities": [],
        "data": {"tokens_per_pack": 128, "lanes": 4, "workers": 0, "sources": [str(output.parent / "pairs.jsonl")]},
        "backbone": {**SMALL["backbone"], **backbone},  # type: ignore[dict-item]
        "train": {
            **SMALL["train"],  # type: ignore[dict-item]
            "optimizer": "adamw", "schedule": "constant", "steps": steps, "objective": "dpo", "learning_rate": 1e-3,
        },
        "parallel": parallel,
        "evaluate": {"max_documents": 8},
        "output": str(output),
    }  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("preferences")
    pairs = pairs_of("pairs", 100)
    every = [pairs.document(number) for number in range(100)]
    rows = [[segment.text for segment in (*pair.segments, pair.rejected[-1])] for pair in every]
    lines = (json.dumps(dict(zip(("prompt", "chosen", "rejected"), row, strict=True))) for row in rows)
    (folder / "pairs.jsonl").write_text("".join(f"{line}\n" for line in lines))
    entries: list[dict[str, Any]] = [{"world": 1, "run": run(folder / "alone", {})}]
    entries += [{"world": 2, "run": run(folder / name, way)} for name, way in WAYS.items()]
    entries += [{"world": world, "run": run(folder / f"lora {world}", {}, **LORA)} for world in (1, 2)]
    entries += [{"world": 2, "joined": 2, "run": run(folder / "joined", {})}]
    entries[-1]["run"]["train"]["lanes_at_once"] = 2
    entries += [{"world": 2, "run": run(folder / "moved", {}, steps=1)}]
    entries += [{"world": 1, "resume": str(folder / "moved"), "over": {"train": {"steps": 2}}}]
    entries += [{"world": 2, "resume": str(folder / "moved"), "over": {"train": {"steps": 3}}}]
    (folder / "trainings.json").write_text(json.dumps(entries))
    done(forked(2, [trainings.__file__, folder / "trainings.json"]), at_most_s=180)
    return lambda name: folder / name


@pytest.mark.parametrize(
    ("name", "alone"), [*((name, "alone") for name in (*WAYS, "joined", "moved")), ("lora 2", "lora 1")]
)
def test_ranks_prefer_what_one_process_does(trained: Callable[[str], Path], name: str, alone: str) -> None:
    assert_same_run(trained(name), trained(alone), rel=1e-5, weights=1e-4)
    rows, expected = (rows_of(trained(one) / "metrics.jsonl") for one in (name, alone))
    for row, one in zip(rows, expected, strict=True):
        for figure in ("margin", "better", "worse"):  # who is right of two rewards of 0 is nobody's to say
            assert row["objective"][figure] == pytest.approx(one["objective"][figure], rel=1e-3, abs=1e-5)
    assert rows[-1]["objective"]["right"] > rows[0]["objective"]["right"]
