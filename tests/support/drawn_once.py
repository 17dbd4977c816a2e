"""Run as each of the ranks of a job, with a folder for the run: trains on documents that each has in another order.

Prints how many of them were read for the fingerprint of the data.
"""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from random import Random

from kosmos import Document, Text, train_model
from support.runs import small_run


class DrawnOnce:
    """Documents in an order that each process draws for itself, of which those of the first rank count."""

    name = "sums"

    def __init__(self) -> None:
        self.rows, self.reads = [*range(60)], 0
        Random(int(os.environ["RANK"])).shuffle(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def document(self, index: int) -> Document:
        callers = {frame.function for frame in inspect.stack(0)}
        self.reads += "sampled_fingerprint" in callers
        row = self.rows[index]
        return Document(f"sum {row}", (Text(f"{row} and 1: "), Text(str(row + 1), train=True)))


def main(output: str) -> None:
    source = DrawnOnce()
    config = small_run(Path(output), modalities=[], data={"lanes": 2, "workers": 0}, train={"steps": 2})
    train_model(config, sources=[source])
    os.write(1, f"rank {os.environ['RANK']} read {source.reads} rows first\n".encode())  # a line at once, of either


if __name__ == "__main__":
    main(sys.argv[1])
