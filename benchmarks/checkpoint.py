"""What a checkpoint costs the training: the seconds that ordering one blocks, of the seconds until it is committed.

    python benchmarks/checkpoint.py                       # preset small, 110 M parameters: 0.9 GB with Lion
    python benchmarks/checkpoint.py --preset tiny --rounds 9

Limit: what blocks has to copy the bytes once, because the next step changes them; a plain copy of the same tensors is
measured in every round. Behind it the files are written, hashed, synced, renamed and verified while steps go on:
products of matrices stand in for them, so that the thread that writes has to share the cores. Target: under 5 %.
Medians.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from kosmos.checkpoint.saver import Saver
from kosmos.model.decoder import Decoder
from kosmos.runtime.parallel import Parallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="small")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    weights = dict(Decoder(32_768, preset=given.preset).state_dict())
    tensors = {f"model.{name}": t for name, t in weights.items()}
    tensors |= {f"momentum.{name}": torch.zeros_like(t) for name, t in weights.items()}
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    blocked, took, copied = [], [], []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        saver = Saver(Path(folder), Parallel.from_environment("cpu"), keep_last=1, report=print)
        for step in range(1, given.rounds + 1):
            begin = perf_counter()
            copies = [t.clone() for t in tensors.values()]
            copied.append(perf_counter() - begin)
            del copies
            saver.save(step, tensors, {"step": step})
            work = torch.randn(1024, 1024)
            while saver.thread is not None and saver.thread.is_alive():
                work @ work
            saved = saver.wait()
            assert saved is not None
            blocked.append(saved.blocked_s)
            took.append(saved.written_s)
    print("| bytes | blocks, s | until committed, s | blocks, share | plain copy, s | blocks, of a copy |")
    print("|---|---|---|---|---|---|")
    b, t, c = median(blocked), median(took), median(copied)
    print(f"| {size:,} | {b:.3f} | {t:.2f} | {100 * b / t:.1f} % | {c:.3f} | {b / c:.2f}x |")


if __name__ == "__main__":
    main()
