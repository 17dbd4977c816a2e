"""Whether what is cheaper learns as what is exact: paired runs over seeds, same data, weights and dropout.

    python benchmarks/alike.py                                      # 8-bit Lion and fp32 Lion: lines of sums, 8 seeds
    python benchmarks/alike.py --way rowwise --way tensorwise       # products in 8 bits and in bf16
    python benchmarks/alike.py --modalities image,audio --seeds 4 --steps 250

For each seed all take the same rows in the same order from the same weights. Compared is the mean loss of the last
fifth of the steps, of a way minus that of what is exact: equal means that the mean over seeds is within two of its
standard errors of zero, and small beside what another seed changes. The widest gap of the curves, smoothed over 20
steps, is given too.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos import Reporter, make_run, train_model

SMOOTH = 20
BF16 = {"precision": "bf16"}
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "lion8bit": ({"optimizer": "lion"}, {"optimizer": "lion8bit"}),
    **{name: (BF16, {**BF16, "fp8": name}) for name in ("tensorwise", "rowwise", "rowwise_with_gw_hp")},
}
"""Settings under ``train``: of what is exact, and of what is cheaper."""


def losses(train: dict[str, Any], modalities: str, seed: int, steps: int) -> NDArray[np.float64]:
    """Of every step of a run."""
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(
            {"modalities": modalities, "trackers": [], "output": f"{folder}/run", "evaluate": {"max_documents": 1}},
            {"data": {"seed": seed}, "train": {"steps": steps, "seed": seed, **train}},
        )
        train_model(run, reporter=Reporter())
        rows = Path(folder, "run", "metrics.jsonl").read_text().splitlines()
    return np.array([json.loads(row)["loss"] for row in rows])


def smooth(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.convolve(curve, np.ones(SMOOTH) / SMOOTH, "valid")


def compare(name: str, exact: list[NDArray[np.float64]], cheaper: list[NDArray[np.float64]], task: str) -> None:
    """A row of the table, of curves by seeds."""
    last = len(exact[0]) // 5
    ends, others = ([float(curve[-last:].mean()) for curve in curves] for curves in (exact, cheaper))
    differences = [b - a for a, b in zip(ends, others, strict=True)]
    gap = max(float(np.abs(smooth(b) / smooth(a) - 1).max()) for a, b in zip(exact, cheaper, strict=True))
    cells = [mean(ends), mean(others), mean(differences), stdev(differences) / len(ends) ** 0.5, stdev(ends)]
    shown = " | ".join(f"{value:.4f}" for value in cells)
    print(f"| {name} | {task} | {len(ends)} | {shown} | {100 * gap:.2f} % |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", action="append", choices=list(WAYS))
    parser.add_argument("--modalities", default="text")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    if given.seeds < 2:
        parser.error("--seeds: one pair of runs has no spread; give 2 or more")
    if given.steps < 5 * SMOOTH:
        parser.error(
            f"--steps: the last fifth is compared, and curves smoothed over {SMOOTH}; give {5 * SMOOTH} or more"
        )
    known: dict[str, list[NDArray[np.float64]]] = {}

    def curves(train: dict[str, Any]) -> list[NDArray[np.float64]]:
        key = json.dumps(train, sort_keys=True)
        if key not in known:
            known[key] = [losses(train, given.modalities, seed, given.steps) for seed in range(given.seeds)]
        return known[key]

    head = (
        "way | task | seeds | exact, last fifth | way | difference | its standard error | spread of seeds | widest gap"
    )
    print(f"| {head} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in given.way or ["lion8bit"]:
        exact, cheaper = WAYS[name]
        compare(name, curves(exact), curves(cheaper), f"{given.modalities}, {given.steps} steps")


if __name__ == "__main__":
    main()
