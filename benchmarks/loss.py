"""Loss and gradients of the output layer on a CPU, beside all logits at once and beside the products alone.

    python benchmarks/loss.py [--precision fp32] [--rounds 5]

The limit, written first: three products of n trained positions, width D and vocabulary V, 6 n D V operations; the row
``products`` takes these alone, in the same rounds. Beside them weights are read in fp32 and written in bf16, and their
gradients summed up in fp32. ``all at once`` is what a Trainer of transformers does: logits of all positions, in fp32
for the loss. ``operations`` is ours without its C++. Candidates take turns; medians over the rounds. Sizes are those of
the mixtures' decoder, SmolLM2-135M, Qwen2.5-0.5B and Llama-3.2-1B.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from kosmos.model import cpu_kernels
from kosmos.model.loss import linear_cross_entropy

SIZES = [(1536, 384, 4_096), (1536, 576, 49_152), (1024, 896, 151_936), (512, 2_048, 128_256)]
"""Trained positions, width, vocabulary."""


def all_at_once(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight).float(), targets, reduction="sum")


def ours(hidden: Tensor, weight: Tensor, targets: Tensor, *, by_kernels: bool) -> Tensor:
    return linear_cross_entropy(hidden, weight, targets, by_kernels=by_kernels).total


def step(loss: Callable[..., Tensor], given: tuple[Tensor, Tensor, Tensor], dtype: torch.dtype) -> None:
    hidden, weight, targets = given
    hidden.grad = weight.grad = None
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        (loss(hidden, weight, targets) / len(targets)).backward()


def products(hidden: Tensor, weight: Tensor, logits: Tensor) -> None:
    torch.mm(hidden, weight.T, out=logits)
    torch.mm(logits, weight)
    torch.mm(logits.T, hidden)


def measure(size: tuple[int, int, int], dtype: torch.dtype, rounds: int) -> dict[str, float]:
    """Medians in seconds."""
    n, width, vocabulary = size
    hidden, weight = torch.randn(n, width, requires_grad=True), torch.empty(vocabulary, width).normal_(std=0.02)
    given = hidden, weight.requires_grad_(), torch.randint(vocabulary, (n,))
    low = hidden.detach().to(dtype), weight.detach().to(dtype)
    arms: dict[str, Callable[[], None]] = {
        "products": partial(products, *low, low[0].new_empty(n, vocabulary)),
        "kosmos": partial(step, partial(ours, by_kernels=True), given, dtype),
        "operations": partial(step, partial(ours, by_kernels=False), given, dtype),
        "all at once": partial(step, all_at_once, given, dtype),
    }
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(1 + rounds):
        for name, run in arms.items():
            begin = time.perf_counter()
            with torch.set_grad_enabled(name != "products"):
                run()
            if number:
                taken[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found) for name, found in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    cpu_kernels.binary()
    print("| positions, width, vocabulary | ms | over products | operations | all at once |")
    print("|---" * 5 + "|")
    for size in SIZES:
        found = measure(size, torch.bfloat16 if given.precision == "bf16" else torch.float32, given.rounds)
        own = found["kosmos"]
        ratios = f"{found['operations'] / own:.2f}x | {found['all at once'] / own:.2f}x"
        print(f"| {', '.join(f'{n:,}' for n in size)} | {1e3 * own:.1f} | {own / found['products']:.2f}x | {ratios} |")


if __name__ == "__main__":
    main()
