"""Kosmos's side of ``train.py``: the real ``train_model`` for some steps. Started by it, in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from products import Operands, Products
from workload import peak_kib_of_ranks, report, run_settings

from kosmos import make_run, train_model
from kosmos.train.progress import Reporter

NOTED = 4
"""Steps whose products are noted: rows differ in what they hold."""


class Clock(Reporter):
    """How long steps take: ``steps`` one after another; then some whose products are noted, and pairs of a step and
    such products alone, by turns, because a machine's rate changes by the second."""

    def __init__(self, steps: int, pairs: int) -> None:
        self.steps, self.pairs = steps, pairs
        self.at: list[float] = []
        self.over_products: list[float] = []
        """Of each pair, over products like after like."""
        self.over_in_order: list[float] = []
        """And over those in the order of a step, on operands of their own."""
        self.step_s: list[float] = []
        self.products_s: list[float] = []
        """Of each pair, the step and its products, like after like."""
        self.peak_kib = 0
        self._noted: Products | None = None
        self._operands = Operands()
        self._again: list[tuple[Callable[[], float], Callable[[], float]]] = []
        self._begin = 0.0

    @property
    def total(self) -> int:
        return self.steps + (NOTED + 1 + self.pairs if self.pairs else 0)

    def step(self, row: Any, steps: int) -> None:
        now = perf_counter()
        self.at.append(now)
        beyond = len(self.at) - self.steps
        if beyond == 0:
            self.peak_kib = peak_kib_of_ranks()
        if self._noted is not None:
            self._noted.__exit__(None, None, None)
            self._again.append((self._noted.again(), self._noted.in_order(self._operands)))
            for take in self._again[-1]:
                take()  # which builds kernels, and maps memory
            self._noted = None
        if beyond > NOTED + 1:  # not the first behind those that were noted
            again, in_order = self._again[beyond % NOTED]
            self.step_s.append(now - self._begin)
            self.products_s.append(again())
            self.over_products.append(self.step_s[-1] / self.products_s[-1])
            self.over_in_order.append(self.step_s[-1] / in_order())
        if self.pairs and 0 <= beyond < NOTED:
            self._noted = Products()
            self._noted.__enter__()
        self._begin = perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixture", default="all")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=12, help="in which resizing is compiled too")
    parser.add_argument("--pairs", type=int, default=16, help="further steps, each timed beside its products alone")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=1, help="rows of a step, which are computed at once")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--plain", action="store_true", help="without kernels: products and attention are PyTorch's")
    parser.add_argument("--strategy", default="ddp", help="of several processes, which torchrun starts")
    parser.add_argument("--folder", type=Path, help="where all processes of a run write; else one of its own")
    parser.add_argument("--bits", type=int, choices=(16,), help="bf16 weights, with so many bits of them beside")
    parser.add_argument("--lora", type=int, metavar="RANK")
    given = parser.parse_args()
    settings = run_settings(given.mixture, given.precision, tokens_per_pack=given.tokens, workers=given.workers)
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    # What rows at once compute is in threads that the count does not see; ranks would wait for each other's products.
    clock = Clock(given.steps, given.pairs if given.lanes == ranks == 1 else 0)
    train = {"steps": clock.total, "warmup_steps": 1, "compile": given.compile or (False if given.plain else "auto")}
    if given.bits:
        train |= {"weights": "bf16", "optimizer": {"name": "adamw", "master": f"bits{given.bits}"}}
    with tempfile.TemporaryDirectory() as folder:
        output = (given.folder or Path(folder)) / "run"
        config = make_run(
            settings,
            {"train": {**train, "lanes_at_once": given.lanes}, "data": {"lanes": max(given.lanes, ranks)}},
            {"output": str(output), "parallel": {"strategy": given.strategy}},
            {"evaluate": {"max_documents": 1}, "backbone": {"lora": given.lora}},
        )
        train_model(config, reporter=clock)
        if int(os.environ.get("RANK", 0)):
            return
        rows = [json.loads(line) for line in Path(output, "metrics.jsonl").read_text().splitlines()]
    counted = rows[given.warmup : given.steps]
    seconds = clock.at[given.steps - 1] - clock.at[given.warmup - 1]
    tokens, media = (sum(row[key] for row in counted) for key in ("tokens", "media_tokens"))
    report(
        tokens_per_s=tokens / seconds,
        padding=1 - sum(row["fill"] for row in counted) / len(counted),
        data_wait=sum(row["data_wait_s"] for row in counted) / seconds,
        media=media / tokens,
        peak_mib=clock.peak_kib / 1024,
        step_s=seconds / len(counted),
        products=median(clock.over_products or [float("nan")]),
        pair_s=median(clock.step_s or [float("nan")]),
        products_s=median(clock.products_s or [float("nan")]),
        products_in_order=median(clock.over_in_order or [float("nan")]),
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
