"""A step of Muon over the matrices of a decoder, beside PyTorch's and beside the products that it is made of.

    python benchmarks/muon.py [--width 384 --layers 6 --ffn-width 1024] [--threads 2] [--device cuda] [--rounds 7]

The limit, written first: five steps of the iteration on an m x n matrix, m the shorter side, are 5 (4 m m n + 2 m m m)
operations. The row `products` takes these products alone, of each shape all matrices at once, in the same rounds; a
step reads and writes 24 bytes a parameter beside them. PyTorch takes one matrix after another. Expected: as PyTorch
where matrices fill the device, a multiple of it where they do not. Candidates take turns; medians over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from kosmos.train.optim.muon import AT_ONCE, Muon
from kosmos.train.optim.newton_schulz import STEPS

SETTINGS = {"lr": 1e-3, "weight_decay": 0.1}
PEER = "PyTorch's Muon"
Shapes = dict[tuple[int, int], int]
"""Of matrices, to how many there are."""


@dataclass(frozen=True)
class Timing:
    """How long a step took."""

    name: str
    step_ms: float
    flops_per_s: float


def shapes_of(width: int, layers: int, ffn_width: int) -> Shapes:
    """Of a decoder in Llama's shape: four of attention and three of SwiGLU a layer."""
    return {(width, width): 4 * layers, (ffn_width, width): 2 * layers, (width, ffn_width): layers}


def operations(shapes: Shapes) -> int:
    """Of the products of one step."""
    sides = ((min(shape), max(shape), count) for shape, count in shapes.items())
    return sum(count * STEPS * (4 * m * m * n + 2 * m**3) for m, n, count in sides)


def measure(shapes: Shapes, device: torch.device, rounds: int) -> list[Timing]:
    """Ours, PyTorch's, and the products alone."""
    parameters = [nn.Parameter(torch.randn(shape, device=device)) for shape, n in shapes.items() for _ in range(n)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    arms: dict[str, Callable[[], object]] = {
        "Muon": Muon(parameters, **SETTINGS).step,
        PEER: torch.optim.Muon(parameters, adjust_lr_fn="match_rms_adamw", **SETTINGS).step,
        "products": partial(_products, [_room(shape, count, device) for shape, count in shapes.items()]),
    }
    times: dict[str, list[float]] = {name: [] for name in arms}
    names = list(arms)
    for number in range(1 + rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            seconds = _seconds(arms[name], device)
            if number:
                times[name].append(seconds)
    done = operations(shapes)
    medians = {name: statistics.median(found) for name, found in times.items()}
    return [Timing(name, seconds * 1e3, done / seconds) for name, seconds in medians.items()]


def table(shapes: Shapes, timings: list[Timing]) -> str:
    """As Markdown; ratios are of medians."""
    by_name = {t.name: t.step_ms for t in timings}
    number = sum(m * n * count for (m, n), count in shapes.items())
    head = f"| {sum(shapes.values())} matrices, {number / 1e6:,.0f} M parameters | step, ms | TFLOP/s of the products |"
    lines = [f"{head} times PyTorch's | over the products |", "|---|---|---|---|---|"]
    lines += [
        f"| {t.name} | {t.step_ms:.1f} | {t.flops_per_s / 1e12:.2f} | {by_name[PEER] / t.step_ms:.2f} "
        f"| {t.step_ms / by_name['products']:.2f} |"
        for t in timings
    ]
    return "\n".join(lines)


Room = tuple[Tensor, Tensor, Tensor, Tensor]


def _room(shape: tuple[int, int], count: int, device: torch.device) -> list[Room]:
    """Matrices, their squares twice, and results, so many at once as the optimizer takes."""
    m, n = min(shape), max(shape)
    most = max(1, AT_ONCE // (m * n))

    def empty(k: int, columns: int) -> Tensor:
        return torch.randn(k, m, columns, device=device).to(torch.bfloat16)

    parts = [min(most, count - start) for start in range(0, count, most)]
    return [(empty(k, n), empty(k, m), empty(k, m), empty(k, n)) for k in parts]


def _products(rooms: list[list[Room]]) -> None:
    for room in rooms:
        for x, gram, square, found in room:
            for _ in range(STEPS):
                torch.bmm(x, x.mT, out=gram)
                torch.bmm(gram, gram, out=square)
                torch.bmm(square, x, out=found)


def _seconds(act: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    act()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def main() -> None:
    """Read the options, measure, print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--ffn-width", type=int, default=1024)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    shapes = shapes_of(given.width, given.layers, given.ffn_width)
    print(table(shapes, measure(shapes, torch.device(given.device), given.rounds)))


if __name__ == "__main__":
    main()
