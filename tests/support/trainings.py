"""Run by torchrun: several trainings in turn, each of as many of the processes as it says. The others wait.

    torchrun --nproc-per-node 4 trainings.py LIST.json

Each entry of the list has ``world`` (processes), ``workers``, and either ``run`` (a run file's content) or ``resume``
(the folder of a run) with ``over``.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from kosmos import make_run
from kosmos.train.run import resume_run, train_model
from support.runs import ticks_registry

CAP_S = 90
"""A training that takes longer ends the process, with a traceback of where it hangs."""


def train(entry: dict[str, Any]) -> None:
    """As one of the processes of ``entry``."""
    if "resume" in entry:
        resume_run(Path(entry["resume"]), entry.get("over", {}), registry=ticks_registry())
    else:
        train_model(make_run(entry["run"]), registry=ticks_registry())


def main(file: str) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*place, is_master=False, timeout=timedelta(seconds=CAP_S))
    for number, entry in enumerate(json.loads(Path(file).read_text())):
        faulthandler.dump_traceback_later(CAP_S, exit=True)
        world = entry["world"]
        os.environ |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
        if rank < world:
            if world > 1:
                own = dist.PrefixStore(f"training {number}", store)
                dist.init_process_group("gloo", store=own, rank=rank, world_size=world)
            train(entry)
        if store.add(f"ended {number}", 1) == size:
            store.set(f"all ended {number}", "")
        store.wait([f"all ended {number}"], timedelta(seconds=CAP_S))
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1])
