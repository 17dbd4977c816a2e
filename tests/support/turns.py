"""Within processes of one torchrun: several jobs in turn, each of as many of the processes as it asks for."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterable
from datetime import timedelta

import torch.distributed as dist

CAP_S = 90
"""A job that takes longer ends the process, with a traceback of where it hangs."""


def in_turn(jobs: Iterable[tuple[int, Callable[[], object]]], *, cap_s: float = CAP_S) -> None:
    """Each job is (processes, what each of them does, which leaves the process group); the others wait."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*place, is_master=False, timeout=timedelta(seconds=cap_s))
    for number, (world, act) in enumerate(jobs):
        faulthandler.dump_traceback_later(cap_s, exit=True)
        os.environ |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
        if rank < world:
            if world > 1:
                own = dist.PrefixStore(f"job {number}", store)
                dist.init_process_group("gloo", store=own, rank=rank, world_size=world)
            act()
        if store.add(f"ended {number}", 1) == size:
            store.set(f"all ended {number}", "")
        store.wait([f"all ended {number}"], timedelta(seconds=cap_s))
    faulthandler.cancel_dump_traceback_later()
