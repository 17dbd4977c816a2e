"""Small runs for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from kosmos import RunConfig, make_run
from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import MODEL, OPTIMIZER, read_whole
from kosmos.plugins import Registry
from kosmos.train.progress import Reporter
from support import ticks

SMALL = {
    "modalities": ["ticks"],
    "data": {"tokens_per_pack": 128, "lanes": 2, "look_ahead": 16, "workers": 0},
    "backbone": {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
    "train": {"steps": 6, "warmup_steps": 1, "precision": "fp32"},
    "trackers": [],
}


class Listener(Reporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)


def ticks_registry(**more: Any) -> Registry:
    """Core and the ticks plugin."""
    return Registry.from_modules({"ticks": ticks, **more})


def small_run(output: Path | None = None, **over: Any) -> RunConfig:
    return make_run(SMALL, {"output": str(output)} if output else {}, over)


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def assert_same_tensors(run: Path, other: Path) -> None:
    """Weights and optimizers' states of the newest checkpoints of two runs, to the bit."""
    for kind in (MODEL, OPTIMIZER):
        tensors, others = (read_whole(load_newest(folder / "checkpoints").tensors, kind) for folder in (run, other))
        assert tensors and tensors.keys() == others.keys(), kind
        assert [name for name, tensor in tensors.items() if not torch.equal(tensor, others[name])] == []
