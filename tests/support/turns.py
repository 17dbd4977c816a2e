"""Within processes of one torchrun: several jobs in turn, each of as many of the processes as it asks for."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterable
from datetime import timedelta

import torch.distributed as dist

from kosmos.runtime.parallel import Parallel

CAP_S = 90
"""A job that takes longer ends the process, with a traceback of where it hangs."""
ON_ONE_GPU = "KOSMOS_TEST_ON_ONE_GPU"
"""Variable by which all processes compute on the first GPU, and NCCL passes tensors between them.

NCCL refuses two ranks on a GPU of one host. Each says that it is a host of its own, and NCCL goes through sockets.
"""


def in_turn(jobs: Iterable[tuple[int, Callable[[], object]]], *, cap_s: float = CAP_S) -> None:
    """Each job is (processes, what each of them does, in a process group that it may leave); the others wait."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    backend = "cpu:gloo,cuda:nccl" if ON_ONE_GPU in os.environ else "gloo"
    store = dist.TCPStore(*place, is_master=False, timeout=timedelta(seconds=cap_s))
    for number, (world, act) in enumerate(jobs):
        faulthandler.dump_traceback_later(cap_s, exit=True)
        os.environ |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
        if ON_ONE_GPU in os.environ:
            os.environ |= host_of_its_own(rank)
        if rank < world:
            if world > 1:
                own = dist.PrefixStore(f"job {number}", store)
                dist.init_process_group(backend, store=own, rank=rank, world_size=world)
            act()
            Parallel(rank, world).close()
        if store.add(f"ended {number}", 1) == size:
            store.set(f"all ended {number}", "")
        store.wait([f"all ended {number}"], timedelta(seconds=cap_s))
    faulthandler.cancel_dump_traceback_later()


def host_of_its_own(rank: int) -> dict[str, str]:
    """Variables of a rank that is alone on its host, with the first GPU."""
    return {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NCCL_HOSTID": f"host {rank}", "NCCL_SOCKET_IFNAME": "lo"}
