"""Kosmos's side of ``train.py``: the real ``train_model`` for some steps. Started by it, in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from products import Products
from workload import report, run_settings

from kosmos import make_run, train_model
from kosmos.train.progress import Reporter


class Clock(Reporter):
    """When each step was over, and the products of the steps from number ``noted`` on."""

    def __init__(self, noted: int) -> None:
        self.at: list[float] = []
        self.noted = noted
        self.products = Products()
        self.peak_kib = 0

    def step(self, row: Any, steps: int) -> None:
        self.at.append(perf_counter())
        if len(self.at) == self.noted:  # from here on nothing is timed
            own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            self.peak_kib = own + sum(peak_kib(worker) for worker in children())
            self.products.__enter__()
        if len(self.at) == steps:
            self.products.__exit__(None, None, None)


def children() -> list[Path]:
    """Folders in /proc of the processes that this one has started."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [Path("/proc", process) for process in text.split()]


def peak_kib(process: Path) -> int:
    """Most memory that it has held since its program began. (``getrusage`` counts its parent's before that.)"""
    found = re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())
    return int(found[1]) if found else 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixture", default="all")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=12, help="in which resizing is compiled too")
    parser.add_argument("--noted", type=int, default=4, help="further steps, whose products are counted")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=1, help="rows of a step, which are computed at once")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--lora", type=int, metavar="RANK")
    given = parser.parse_args()
    settings = run_settings(given.mixture, given.precision, tokens_per_pack=given.tokens, workers=given.workers)
    clock = Clock(given.steps)
    train = {"steps": given.steps + given.noted, "warmup_steps": 1, "compile": given.compile or "auto"}
    with tempfile.TemporaryDirectory() as folder:
        config = make_run(
            settings,
            {"train": {**train, "lanes_at_once": given.lanes}, "data": {"lanes": given.lanes}},
            {"output": f"{folder}/run"},
            {"evaluate": {"max_documents": 1}, "backbone": {"lora": given.lora}},
        )
        train_model(config, reporter=clock)
        rows = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    counted, noted = rows[given.warmup : given.steps], rows[given.steps :]
    seconds = clock.at[given.steps - 1] - clock.at[given.warmup - 1]
    tokens, media = (sum(row[key] for row in counted) for key in ("tokens", "media_tokens"))
    # What rows at once compute is in threads that the count does not see.
    products = clock.products.seconds() / sum(row["tokens"] for row in noted) if given.lanes == 1 else float("nan")
    report(
        tokens_per_s=tokens / seconds,
        padding=1 - sum(row["fill"] for row in counted) / len(counted),
        data_wait=sum(row["data_wait_s"] for row in counted) / seconds,
        media=media / tokens,
        peak_mib=clock.peak_kib / 1024,
        step_s=seconds / len(counted),
        products=seconds / tokens / products,
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
