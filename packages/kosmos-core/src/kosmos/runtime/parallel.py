"""The processes of a run: who owns which lanes, and what they tell each other."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from kosmos.errors import ConfigError, KosmosError, TrainingError

T = TypeVar("T")


@dataclass(frozen=True)
class Parallel:
    """Rank and number of processes; one process needs no start-up."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    group: Any = None
    """Process group of what is told; None is that of all ranks."""

    @staticmethod
    def from_environment(device: str) -> Parallel:
        """As torchrun set it up; joins the process group if there is more than one process."""
        world_size = int(os.environ.get("WORLD_SIZE", "1"))
        if world_size > 1 and not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if device != "cpu" and torch.cuda.is_available() else "gloo")
        names = ("RANK", "LOCAL_RANK")
        rank, local_rank = (int(os.environ.get(name, "0")) for name in names)
        return Parallel(rank, world_size, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))

    def beside(self) -> Parallel:
        """The same ranks in a group of their own, so that another thread can use it. All ranks call this."""
        if self.world_size == 1:
            return self
        group = dist.new_group(backend="gloo")
        return Parallel(self.rank, self.world_size, self.local_rank, self.local_world_size, group)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def lanes(self, num_lanes: int) -> list[int]:
        """The lanes of this rank.

        Raises:
            ConfigError: the lanes cannot be dealt out evenly.
        """
        if num_lanes % self.world_size:
            raise ConfigError(
                f"data.lanes: {num_lanes} lanes cannot be dealt to {self.world_size} processes evenly; "
                "use a multiple of them"
            )
        return list(range(self.rank, num_lanes, self.world_size))

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank. Plain values of our own making only."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def agreed(self, act: Callable[[], T]) -> list[T]:
        """What ``act`` gives on every rank, in their order. ``act`` tells other ranks nothing itself.

        Raises:
            KosmosError: it failed on some rank; all ranks raise the error of the first of them, who prints it.
        """
        if self.world_size == 1:
            return [act()]
        mine: T | None = None
        error: KosmosError | None = None
        try:
            mine = act()
        except KosmosError as failure:
            error = failure
        except Exception as failure:
            error = TrainingError(f"rank {self.rank}: {type(failure).__name__}: {' '.join(str(failure).split())}")
            error.__cause__ = failure
        everyone = self.gather((mine, _plain(error)))
        first = next((rank for rank, (_, failed) in enumerate(everyone) if failed is not None), None)
        if first is None:
            return [value for value, _ in everyone]
        if first == self.rank and error is not None:
            raise error
        raise everyone[first][1]

    def main_only(self, act: Callable[[], T]) -> T:
        """What ``act`` gives on the first rank, which alone does it; every rank gets it, or its error."""
        done: list[Any] = self.agreed(lambda: act() if self.is_main else None)
        result: T = done[0]
        return result

    def close(self) -> None:
        if self.world_size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def _plain(error: KosmosError | None) -> KosmosError | None:
    """The error as another rank raises it: without traceback, and not printed again."""
    if error is None:
        return None
    told = copy.copy(error)
    told.__cause__ = told.__context__ = None
    told.elsewhere = True
    return told.with_traceback(None)
