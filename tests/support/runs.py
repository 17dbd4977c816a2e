"""Small runs for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kosmos import RunConfig, make_run
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
