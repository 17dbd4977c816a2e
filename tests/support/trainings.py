"""Run by torchrun: several trainings in turn, each of as many of the processes as it says. The others wait.

    torchrun --nproc-per-node 4 trainings.py LIST.json

Each entry of the list has ``world`` (processes), and either ``run`` (a run file's content) or ``resume`` (the folder of
a run) with ``over``. With ``aloud`` it says on standard error what ``kosmos train`` says. With ``joined`` a CPU joins
rows as a GPU does, so many in every pass.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kosmos import make_run
from kosmos.data.batch import PackedBatch
from kosmos.train import backward, passes
from kosmos.train.progress import ConsoleReporter
from kosmos.train.run import resume_run, train_model
from support.runs import ticks_registry
from support.turns import in_turn


def train(entry: dict[str, Any]) -> None:
    """As one of the processes of ``entry``."""
    with as_a_gpu_joins(entry["joined"]) if "joined" in entry else nullcontext():
        train_as_it_is(entry)


@contextmanager
def as_a_gpu_joins(number: int) -> Iterator[None]:
    sizes: list[int] = []

    def noted(batches: Sequence[PackedBatch]) -> PackedBatch:
        sizes.append(len(batches))
        return passes.joined(batches)

    with patch.object(passes, "JOINED_ON", {"cpu"}), patch.object(backward, "joined", noted):
        yield
    assert sizes and set(sizes) == {number}, sizes


def train_as_it_is(entry: dict[str, Any]) -> None:
    reporter = ConsoleReporter() if entry.get("aloud") else None
    if "parts" in entry:  # as a run leaves it whose memory did not suffice
        Path(entry["resume"], "parts.json").write_text(json.dumps({"parts": entry["parts"]}))
    if "resume" in entry:
        resume_run(Path(entry["resume"]), entry.get("over", {}), registry=ticks_registry(), reporter=reporter)
    else:
        train_model(make_run(entry["run"]), registry=ticks_registry(), reporter=reporter)


def main(file: str) -> None:
    in_turn((entry["world"], partial(train, entry)) for entry in json.loads(Path(file).read_text()))


if __name__ == "__main__":
    main(sys.argv[1])
