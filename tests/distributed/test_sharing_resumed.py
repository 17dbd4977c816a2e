"""A run whose ranks share matrices or rows, and then share them otherwise, or not at all: one launch for all."""

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

ROWS = {"tokens_per_pack": 48, "lanes": 2, "look_ahead": 4, "workers": 0, "sources": ["ticks", "sums"]}
"""Rows of one or two documents, so that a part often lacks a modality, and an item often crosses a border."""
WAYS: dict[str, list[dict[str, Any]]] = {
    "tensor": [
        {"world": 2, "tensor": 2, "steps": 1},
        {"world": 1, "steps": 2},
        {"world": 4, "tensor": 2, "steps": 4},
        {"world": 2, "steps": 6},
    ],
    "sequence": [
        {"world": 4, "sequence": 2, "steps": 1},
        {"world": 1, "steps": 2},
        {"world": 2, "sequence": 2, "strategy": "ddp", "steps": 3},
        {"world": 4, "sequence": 2, "strategy": "hsdp", "shards": 2, "steps": 4},
        {"world": 4, "sequence": 4, "steps": 6},
    ],
}
"""A run's processes and degrees, which change on the way.

Each mesh of ranks is in here once: torch keeps what it has worked out for a mesh beyond the end of its process groups.
"""
OWN: dict[str, dict[str, Any]] = {
    "tensor": {"backbone": {"dropout": 0.1}, "train": {"optimizer": "adamw"}},  # all ranks of a group drop the same
    "sequence": {"backbone": {"kv_heads": 4}, "train": {"optimizer": "lion"}},
}


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """The run of ``WAYS`` by its name, and the same run of one process."""
    folder = tmp_path_factory.mktemp("moved")
    entries = [entry for name in WAYS for entry in [_alone(name, folder), *_on_its_way(name, folder)]]
    (folder / "trainings.json").write_text(json.dumps(entries))
    done(forked(4, [trainings.__file__, folder / "trainings.json"]), at_most_s=300)
    return lambda name: (folder / name, folder / f"{name} alone")


def test_a_run_goes_on_from_shared_matrices_to_one_process_and_back(moved: Callable[[str], tuple[Path, Path]]) -> None:
    assert_same_run(*moved("tensor"), rel=1e-5, weights=1e-5)


def test_a_run_goes_on_with_rows_shared_otherwise(moved: Callable[[str], tuple[Path, Path]]) -> None:
    assert_same_run(*moved("sequence"), rel=1e-5, weights=1e-5)


def _alone(name: str, folder: Path) -> dict[str, Any]:
    return {"world": 1, "run": _run(name, folder / f"{name} alone", {"steps": 6})}


def _on_its_way(name: str, folder: Path) -> list[dict[str, Any]]:
    first, *later = WAYS[name]
    goes_on = [
        {
            "world": way["world"],
            "resume": str(folder / name),
            "over": {"train": {"steps": way["steps"]}, **_parallel(way)},
        }
        for way in later
    ]
    return [{"world": first["world"], "run": _run(name, folder / name, first)}, *goes_on]


def _run(name: str, output: Path, way: dict[str, Any]) -> dict[str, Any]:
    own = OWN[name]
    backbone = {"name": "decoder", "width": 32, "layers": 2, "heads": 4, "ffn_width": 54, **own["backbone"]}
    train = {"warmup_steps": 1, "precision": "fp32", "schedule": "constant", "steps": way["steps"], **own["train"]}
    run = {**SMALL, "data": ROWS, "backbone": backbone, "train": train, "output": str(output), **_parallel(way)}
    return {**run, "evaluate": {"max_documents": 8}}


def _parallel(way: dict[str, Any]) -> dict[str, Any]:
    names = {"tensor": 1, "sequence": 1, "strategy": "auto", "shards": None}
    return {"parallel": {name: way.get(name, default) for name, default in names.items()}}
