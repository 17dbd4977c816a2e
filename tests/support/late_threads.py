"""A rank that ends while its threads of gloo get no core, and so free what they exchanged late.

Two ranks run it, with ``ddp`` where a model of DDP outlives the run.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kosmos.runtime.parallel import Parallel
from kosmos.train.sharding import _sum_bucket

TASKS = Path("/proc/self/task")
BUSY = "import time; end = time.monotonic() + 30\nwhile time.monotonic() < end: pass"


def threads() -> Iterator[int]:
    return (int(task.name) for task in TASKS.iterdir())


def crowd(core: int, parallel: Parallel) -> None:
    """All threads of all ranks on one core, which somebody else wants too."""
    for thread in threads():
        os.sched_setaffinity(thread, {core})
    if parallel.is_main:
        busy = subprocess.Popen([sys.executable, "-c", BUSY])
        os.sched_setaffinity(busy.pid, {core})
        atexit.register(busy.kill)


def main(model: nn.Module | None) -> None:
    before = set(threads())
    parallel = Parallel.from_environment("cpu")
    exchange = reduced if model is not None else parallel.gather
    exchange(model or "the first exchange starts threads")
    of_gloo = set(threads()) - before
    crowd(max(os.sched_getaffinity(0)), parallel)
    parallel.gather("all are there")
    for thread in of_gloo:
        with suppress(ProcessLookupError):  # some are there for the first exchange alone
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    assert of_gloo & set(threads())
    exchange(model or "whose tensor is freed late")
    parallel.close()


KEPT: list[nn.Module] = []
"""A model that is there until the interpreter takes this module apart."""


def reduced(model: nn.Module) -> None:
    if not KEPT:
        KEPT.append(DistributedDataParallel(model))
        KEPT[0].register_comm_hook(None, _sum_bucket)
    KEPT[0](torch.ones(1, 300)).sum().backward()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(nn.Linear(300, 300) if "ddp" in sys.argv[1:] else None)
