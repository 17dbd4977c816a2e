"""Training speed: Kosmos against a Hugging Face Trainer on the same work, and against the products alone.

    python benchmarks/train.py                               # all mixtures, fp32 and bf16 (a quarter of an hour)
    python benchmarks/train.py --mixture all --precision bf16 --rounds 1
    python benchmarks/train.py --mixture captions --nanovlm FOLDER          # with a checkout of nanoVLM as a peer
    python benchmarks/train.py --lora 16                     # of the decoder updates of this rank learn, by peft's
    pip install accelerate peft                              # what the Trainer needs beside transformers

Limit: ``products`` is the step's time over the sum of its products, convolutions and attention, which run again by
themselves right behind a step (``products.py``), in pairs. ``compiled`` is Kosmos with ``train.compile``, after the
steps in which it compiles, ``at-once`` Kosmos with ``train.lanes_at_once`` on two rows, of 2,048 tokens each as its one
row else, or of 1,024.
Rounds are interleaved, each side in a process of its own; medians. Both sides are given the same documents, encoders
and decoder shape; the Trainer pads a batch of 16 to its longest document, with and without grouping 4,096 documents, or
256, by length, and is timed on batches spread evenly over all. Useful tokens: text tokens and slots of media, padding
excluded. nanoVLM, which is no package, is a peer on pictures with captions where a checkout is given: in batches of
two, its default, and of eight sequences of 512, which pad least.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
SIDES = {
    "kosmos": ["train_kosmos.py"],
    "at-once": ["train_kosmos.py", "--lanes", "2"],
    "at-once-1024": ["train_kosmos.py", "--lanes", "2", "--tokens", "1024"],
    "compiled": ["train_kosmos.py", "--compile"],
    "trainer": ["train_trainer.py"],
    "grouped": ["train_trainer.py", "--grouped"],
    "grouped-256": ["train_trainer.py", "--grouped", "--documents", "256"],
}
"""Name to script and arguments. Grouping by length leaves less padding the more documents there are."""
OWN = ("kosmos", "at-once", "at-once-1024", "compiled")
COLUMNS = (
    "mixture", "side", "useful tokens/s", *(f"{own} is" for own in OWN), "media", "padding", "peak MiB", "products",
    "data wait",
)  # fmt: skip
NANOVLM = {
    "nanovlm": ["train_nanovlm.py", "--batch", "8", "--length", "512"],
    "nanovlm-2": ["train_nanovlm.py", "--batch", "2", "--length", "1024"],
}


def run(side: str, *arguments: str) -> dict[str, Any]:
    """One round of one side."""
    script, *own = {**SIDES, **NANOVLM}[side]
    done = subprocess.run(
        [sys.executable, str(HERE / script), *own, *arguments], capture_output=True, text=True, cwd=HERE, check=False
    )
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
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.lora and given.nanovlm:
        parser.error("nanoVLM has no LoRA")
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---" * len(COLUMNS) + "|")
    for mixture in given.mixture or ["all", "captions", "text"]:
        for precision in given.precision or ["fp32", "bf16"]:
            sides = [*(given.side or SIDES), *(NANOVLM if given.nanovlm and mixture == "captions" else ())]
            found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
            for round_number in range(given.rounds):
                for side in found:
                    more = [] if side in OWN else ["--seed", str(round_number)]
                    more += ["--checkout", given.nanovlm] if side in NANOVLM else []
                    more += ["--lora", given.lora] if given.lora else []
                    found[side].append(run(side, "--mixture", mixture, "--precision", precision, *more))
            show(f"{mixture}, {precision}" + (f", LoRA {given.lora}" if given.lora else ""), found)


def show(name: str, found: dict[str, list[dict[str, Any]]]) -> None:
    def middle(side: str, key: str) -> float:
        return median(r[key] for r in found[side])

    for side in found:
        speed = middle(side, "tokens_per_s")
        ratios = [f"{middle(own, 'tokens_per_s') / speed:.2f}x" if own in found and own != side else "-" for own in OWN]
        cells = [
            name, side, f"{speed:,.0f}", *ratios, f"{100 * middle(side, 'media'):.0f} %",
            f"{100 * middle(side, 'padding'):.1f} %", f"{middle(side, 'peak_mib'):,.0f}",
            f"{middle(side, 'products'):.2f}x" if side == "kosmos" else "-",
            f"{100 * middle(side, 'data_wait'):.1f} %" if side in OWN else "-",
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
