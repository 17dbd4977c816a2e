"""A store of torch's for the ranks of one start, where their launcher's outlives several.

torchrun starts ranks again with the store of the ranks before them (torch 2.11), in which addresses of the dead and
their last words still stand: connections are refused, or ranks end themselves for a failure that is over.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from kosmos.errors import TrainingError

PATIENCE_S = 600.0
"""Seconds in which all ranks have to come."""
POLL_S = 0.02
_AGREED = "kosmos/start"


def has_lasting_store() -> bool:
    """Whether the launcher keeps the ranks' store."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def store_of_this_start(rank: int, world_size: int) -> Store:
    """What ``init_process_group`` wants, empty. All ranks of a start call this.

    Raises:
        TrainingError: not all have come.
    """
    timeout = timedelta(seconds=PATIENCE_S)
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timeout)
    return PrefixStore(agreed_name(store, rank, world_size), store)


def agreed_name(store: Store, rank: int, world_size: int, *, patience_s: float = PATIENCE_S) -> str:
    """A name that the ranks of this start agree on and no other start has had.

    Each signs in with a number of its own. The first answers with a name and the numbers that it has seen, among which
    those of ranks before may be, and goes on answering until all have found theirs and said so.
    """
    mine, end = uuid.uuid4().hex, time.monotonic() + patience_s
    store.set(f"{_AGREED}/{rank}", mine)
    while time.monotonic() < end:
        if rank == 0:
            _answer(store, mine, world_size)
            if store.check([f"{_AGREED}/{mine}/{other}" for other in range(1, world_size)]):
                return mine
        elif store.check([_AGREED]) and (said := json.loads(store.get(_AGREED)))[rank : rank + 1] == [mine]:
            store.set(f"{_AGREED}/{said[0]}/{rank}", "")
            return str(said[0])
        time.sleep(POLL_S)
    raise TrainingError(f"rank {rank}: not all of {world_size} processes have come within {patience_s:g} s")


def _answer(store: Store, name: str, world_size: int) -> None:
    keys = [f"{_AGREED}/{other}" for other in range(1, world_size)]
    if store.check(keys):
        store.set(_AGREED, json.dumps([name, *(number.decode() for number in store.multi_get(keys))]))
