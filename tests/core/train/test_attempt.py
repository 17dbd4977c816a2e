"""Ranks of one start agree on a name, whatever those of starts before have left in the store."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore

from kosmos.errors import TrainingError
from kosmos.runtime.attempt import agreed_name


def names(store: HashStore, ranks: list[int], world_size: int, *, late_s: float = 0.0) -> list[str]:
    """What each rank finds; they come one after another."""

    def come(place: int, rank: int) -> str:
        time.sleep(place * late_s)
        return agreed_name(store, rank, world_size, patience_s=10)

    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(come, range(world_size), ranks))


def test_every_start_has_a_name_of_its_own_that_all_its_ranks_know() -> None:
    store, seen = HashStore(), set()
    for ranks in ([0, 1, 2], [2, 1, 0], [1, 0], [0, 3, 1, 2]):
        for late_s in (0.0, 0.1):
            found = names(store, ranks, len(ranks), late_s=late_s)
            assert len(set(found)) == 1
            assert found[0] not in seen
            seen.add(found[0])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_nobody_joins_says_so(rank: int) -> None:
    store = HashStore()
    names(store, [0, 1], 2)
    with pytest.raises(TrainingError, match=f"rank {rank}: not all of 2 processes have come within 0.2 s"):
        agreed_name(store, rank, 2, patience_s=0.2)
