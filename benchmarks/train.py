"""Training speed: Kosmos against a Hugging Face Trainer on the same work, and against the products alone.

    python benchmarks/train.py                               # all mixtures, fp32 and bf16 (a quarter of an hour)
    python benchmarks/train.py --mixture all --precision bf16 --rounds 1
    python benchmarks/train.py --mixture captions --nanovlm FOLDER          # with a checkout of nanoVLM as a peer
    python benchmarks/train.py --lora 16                     # of the decoder updates of this rank learn, by peft's
    python benchmarks/train.py --ranks 2 --side kosmos --side fsdp --side trainer    # processes of each, by torchrun
    pip install accelerate peft                              # what the Trainer needs beside transformers

Limit: ``products`` is the step's time over the sum of its products, convolutions and attention, which run again by
themselves right behind a step (``products.py``), in pairs. ``plain`` is Kosmos without its kernels, with
``train.compile: false``: ``plain products`` is a step's time over the sum of PyTorch's own products and attention in
the same rows, which that run has timed. ``compiled`` is Kosmos with ``train.compile``, after the
steps in which it compiles, ``at-once`` Kosmos with ``train.lanes_at_once`` on two rows, of 2,048 tokens each as its one
row else, or of 1,024. With ``--ranks`` each side is started by torchrun, in DDP, with a share of the cores a process;
``fsdp`` is Kosmos with ``parallel.strategy: fsdp``. Memory is then that of all processes together.
Rounds are interleaved, each side in a process of its own; medians. Both sides are given the same documents, encoders
and decoder shape; the Trainer pads a batch of 16 to its longest document, with and without grouping 4,096 documents, or
256, by length, and is timed on batches spread evenly over all. Useful tokens: text tokens and slots of media, padding
excluded. nanoVLM, which is no package, is a peer on pictures with captions where a checkout is given: in batches of
two, its default, and of eight sequences of 512, which pad least.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
SIDES = {
    "kosmos": ["train_kosmos.py"],
    "at-once": ["train_kosmos.py", "--lanes", "2"],
    "at-once-1024": ["train_kosmos.py", "--lanes", "2", "--tokens", "1024"],
    "compiled": ["train_kosmos.py", "--compile"],
    "fsdp": ["train_kosmos.py", "--strategy", "fsdp"],
    "plain": ["train_kosmos.py", "--plain"],
    "trainer": ["train_trainer.py"],
    "grouped": ["train_trainer.py", "--grouped"],
    "grouped-256": ["train_trainer.py", "--grouped", "--documents", "256"],
}
"""Name to script and arguments. Grouping by length leaves less padding the more documents there are."""
OWN = ("kosmos", "at-once", "at-once-1024", "compiled", "fsdp", "plain")
OF_ONE = ("at-once", "at-once-1024")
"""Sides that are one process by what they do."""
FLOORED = ("kosmos", "plain")
"""Sides whose products are measured by themselves."""
COLUMNS = (
    "mixture", "side", "useful tokens/s", *(f"{own} is" for own in OWN), "media", "padding", "peak MiB", "products",
    "plain products", "data wait",
)  # fmt: skip
NANOVLM = {
    "nanovlm": ["train_nanovlm.py", "--batch", "8", "--length", "512"],
    "nanovlm-2": ["train_nanovlm.py", "--batch", "2", "--length", "1024"],
}


def run(side: str, ranks: int, *arguments: str) -> dict[str, Any]:
    """One round of one side, in so many processes."""
    script, *own = {**SIDES, **NANOVLM}[side]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    share = {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // ranks))} if ranks > 1 else {}
    with tempfile.TemporaryDirectory() as folder:
        own += ["--folder", folder] if side in OWN else []
        done = subprocess.run(
            [sys.executable, *torchrun, str(HERE / script), *own, *arguments],
            capture_output=True, text=True, cwd=HERE, check=False, env=os.environ | share,
        )  # fmt: skip
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not results:
        raise SystemExit(f"{side}: no result\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(results[-1].removeprefix("RESULT "))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixture", action="append", choices=["all", "captions", "text"])
    parser.add_argument("--precision", action="append", choices=["fp32", "bf16"])
    parser.add_argument("--side", action="append", choices=list(SIDES))
    parser.add_argument("--nanovlm", metavar="FOLDER", help="a checkout of huggingface/nanoVLM")
    parser.add_argument("--lora", metavar="RANK", help="train updates beside the decoder's layers; the Trainer by peft")
    parser.add_argument("--ranks", type=int, default=1, help="processes of each side, started by torchrun")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.ranks > 1 and (given.nanovlm or set(given.side or ()) & {*OF_ONE}):
        parser.error("nanoVLM and rows at once are one process here")
    possible = [side for side in SIDES if side not in (OF_ONE if given.ranks > 1 else ("fsdp",))]
    if given.lora and given.nanovlm:
        parser.error("nanoVLM has no LoRA")
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---" * len(COLUMNS) + "|")
    for mixture in given.mixture or ["all", "captions", "text"]:
        for precision in given.precision or ["fp32", "bf16"]:
            sides = [*(given.side or possible), *(NANOVLM if given.nanovlm and mixture == "captions" else ())]
            found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
            for round_number in range(given.rounds):
                for side in found:
                    more = [] if side in OWN else ["--seed", str(round_number)]
                    more += ["--checkout", given.nanovlm] if side in NANOVLM else []
                    more += ["--lora", given.lora] if given.lora else []
                    found[side].append(run(side, given.ranks, "--mixture", mixture, "--precision", precision, *more))
            name = f"{mixture}, {precision}" + (f", LoRA {given.lora}" if given.lora else "")
            name += f", {given.ranks} ranks" if given.ranks > 1 else ""
            show(name, found, is_one=given.ranks == 1)


def show(name: str, found: dict[str, list[dict[str, Any]]], *, is_one: bool = True) -> None:
    def middle(side: str, key: str) -> float:
        return median(r[key] for r in found[side])

    for side in found:
        speed, floored = middle(side, "tokens_per_s"), is_one and side in FLOORED
        ratios = [f"{middle(own, 'tokens_per_s') / speed:.2f}x" if own in found and own != side else "-" for own in OWN]
        cells = [
            name, side, f"{speed:,.0f}", *ratios, f"{100 * middle(side, 'media'):.0f} %",
            f"{100 * middle(side, 'padding'):.1f} %", f"{middle(side, 'peak_mib'):,.0f}",
            f"{middle(side, 'products'):.2f}x" if floored else "-",
            f"{middle(side, 'pair_s') / middle('plain', 'products_s'):.2f}x" if floored and "plain" in found else "-",
            f"{100 * middle(side, 'data_wait'):.1f} %" if side in OWN else "-",
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
