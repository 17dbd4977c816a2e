"""Kosmos's side of ``train.py``: the real ``train_model`` for some steps. Started by it, in a process of its own."""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from workload import report, run_settings

from kosmos import make_run, train_model
from kosmos.train.progress import Reporter


class Clock(Reporter):
    """When each step was over."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def step(self, row: Any, steps: int) -> None:
        self.at.append(perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixture", default="all")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    settings = run_settings(given.mixture, given.precision, tokens_per_pack=given.tokens, workers=given.workers)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = make_run(
            settings,
            {"train": {"steps": given.steps, "warmup_steps": 1}, "output": f"{folder}/run"},
            {"evaluate": {"max_documents": 1}},
        )
        train_model(config, reporter=clock)
        rows = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    counted = rows[given.warmup :]
    seconds = clock.at[-1] - clock.at[given.warmup - 1]
    tokens = sum(row["tokens"] for row in counted)
    usage = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    report(
        tokens_per_s=tokens / seconds,
        padding=1 - sum(row["fill"] for row in counted) / len(counted),
        data_wait=sum(row["data_wait_s"] for row in counted) / seconds,
        peak_mib=sum(usage) / 1024,
        step_s=seconds / len(counted),
        limit=len(counted) / sum(row["mfu"] for row in counted),
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
