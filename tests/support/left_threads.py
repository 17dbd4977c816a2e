"""A rank that ends with status 9 where threads of gloo are left as the interpreter ends.

Two ranks run it, with ``kept`` where a sharded model and a group beside that of all ranks outlive the run.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from kosmos.runtime.parallel import Parallel

TASKS = Path("/proc/self/task")
KEPT: list[Any] = []


def of_gloo() -> list[str]:
    """Names of the threads that serve exchanges."""
    return [name for task in TASKS.iterdir() if "gloo" in (name := (task / "comm").read_text())]


def look() -> None:
    if of_gloo():
        os._exit(9)


def main(*, kept: bool) -> None:
    atexit.register(look)  # what is registered first runs last
    parallel = Parallel.from_environment("cpu")
    beside = parallel.beside()
    mesh = init_device_mesh("cpu", (1, parallel.world_size), mesh_dim_names=("replicate", "shard"))
    model = fully_shard(nn.Linear(4, 4), mesh=mesh)
    model(torch.ones(1, 4)).sum().backward()
    beside.gather("a word")
    assert of_gloo(), "threads of gloo have other names"
    if kept:
        KEPT.extend([model, beside])
        gc.freeze()  # as whoever wants it looked through no more
    parallel.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(kept="kept" in sys.argv[1:])
