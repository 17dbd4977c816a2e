"""Whether 8-bit Lion learns as fp32 Lion does: paired runs over seeds, same data, weights and dropout.

    python benchmarks/lion8bit.py                                   # lines of sums, 8 seeds, 300 steps
    python benchmarks/lion8bit.py --modalities image,audio --seeds 4 --steps 250

For each seed both take the same rows in the same order from the same weights. Compared is the mean loss of the last
fifth of the steps, 8-bit minus fp32: equal means that the mean over seeds is within two of its standard errors of zero,
and small beside what another seed changes. The widest gap of the curves, smoothed over 20 steps, is given too.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from numpy.typing import NDArray

from kosmos import Reporter, make_run, train_model

SMOOTH = 20


def losses(optimizer: str, modalities: str, seed: int, steps: int) -> NDArray[np.float64]:
    """Of every step of a run."""
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(
            {"modalities": modalities, "trackers": [], "output": f"{folder}/run", "evaluate": {"max_documents": 1}},
            {"data": {"seed": seed}, "train": {"steps": steps, "seed": seed, "optimizer": optimizer}},
        )
        train_model(run, reporter=Reporter())
        rows = Path(folder, "run", "metrics.jsonl").read_text().splitlines()
    return np.array([json.loads(row)["loss"] for row in rows])


def smooth(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.convolve(curve, np.ones(SMOOTH) / SMOOTH, "valid")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--modalities", default="text")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    if given.seeds < 2:
        parser.error("--seeds: one pair of runs has no spread; give 2 or more")
    ends: dict[str, list[float]] = {"lion": [], "lion8bit": []}
    gaps = []
    for seed in range(given.seeds):
        curves = {name: losses(name, given.modalities, seed, given.steps) for name in ends}
        for name, curve in curves.items():
            ends[name].append(float(curve[-given.steps // 5 :].mean()))
        smoothed = [smooth(curve) for curve in curves.values()]
        gaps.append(float(np.abs(smoothed[1] / smoothed[0] - 1).max()))
    differences = [b - a for a, b in zip(*ends.values(), strict=True)]
    error = stdev(differences) / given.seeds**0.5
    print(
        "| task | seeds | fp32, last fifth | 8-bit | difference | its standard error | spread of seeds | widest gap |"
    )
    print("|---|---|---|---|---|---|---|---|")
    cells = [mean(ends["lion"]), mean(ends["lion8bit"]), mean(differences), error, stdev(ends["lion"])]
    shown = " | ".join(f"{value:.4f}" for value in cells)
    print(f"| {given.modalities}, {given.steps} steps | {given.seeds} | {shown} | {100 * max(gaps):.2f} % |")


if __name__ == "__main__":
    main()
