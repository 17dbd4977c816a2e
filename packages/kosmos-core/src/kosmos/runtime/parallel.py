"""The processes of a run: who owns which lanes, and what they tell each other."""

from __future__ import annotations

import atexit
import copy
import gc
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from kosmos.ending import check_exchanges, exchanges_broke
from kosmos.errors import Interrupted, KosmosError, TrainingError, cause
from kosmos.runtime.attempt import has_lasting_store, store_of_this_start
from kosmos.runtime.dealing import check_lanes, num_groups
from kosmos.runtime.environment import meeting_place, num_local_processes, num_processes, own_local_rank, own_rank
from kosmos.runtime.launch import end_with_launcher, is_launched
from kosmos.runtime.meeting import meeting

T = TypeVar("T")
E = TypeVar("E", bound=KosmosError)


_PEER_GONE = r"(?i)closed by peer|closed by remote peer|remote process exited|reset by peer|broken pipe"
"""What an exchange of gloo or NCCL says whose other end has died."""


def tells_of_end(error: BaseException) -> bool:
    """Whether an exchange has failed since another rank is gone."""
    return re.search(_PEER_GONE, str(error)) is not None


@dataclass(frozen=True)
class Parallel:
    """Rank and number of processes; one process needs no start-up."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    group: Any = None
    """Process group of what is told; None is that of all ranks."""
    sharing: int = 1
    """Neighbouring ranks that train the same rows together, each with a part of the matrices or of the tokens."""
    of_caller: tuple[Any, ...] = ()
    """Process groups of who called, which stay."""

    @staticmethod
    def from_environment(device: str) -> Parallel:
        """As torchrun set it up; joins the process group if there is more than one process.

        Raises:
            ConfigError: a variable of the environment is wrong, or is missing.
            TrainingError: the processes do not meet, or a run of this one has lost the others.
        """
        check_exchanges()
        world_size = num_processes()
        parallel = Parallel(own_rank(world_size), world_size, own_local_rank(), num_local_processes())
        if world_size > 1 and is_launched():
            end_with_launcher()
        if world_size > 1 and dist.is_initialized():
            return replace(parallel, of_caller=tuple(_groups()))
        if world_size > 1:
            with meeting(parallel.rank, world_size, meeting_place()):
                parallel._join(device)
        return parallel

    def _join(self, device: str) -> None:
        backend = "cpu:gloo,cuda:nccl" if device != "cpu" and torch.cuda.is_available() else "gloo"
        how: dict[str, Any] = {}
        if has_lasting_store():
            store = store_of_this_start(self.rank, self.world_size)
            how = {"store": store, "rank": self.rank, "world_size": self.world_size}
        dist.init_process_group(backend, **how)

    def beside(self) -> Parallel:
        """The same ranks in a group of their own, so that another thread can use it. All ranks call this."""
        if self.world_size == 1:
            return self
        return replace(self, group=dist.new_group(backend="gloo"))

    def shared_by(self, ranks: int) -> Parallel:
        """The same ranks, where so many neighbours train the same rows. A process alone shares them with none.

        Raises:
            ConfigError: the ranks cannot be split so.
        """
        return replace(self, sharing=self.world_size // num_groups(self.world_size, ranks))

    @property
    def data_rank(self) -> int:
        """Number of the group that trains this rank's rows."""
        return self.rank // self.sharing

    @property
    def data_world_size(self) -> int:
        """Groups with rows of their own."""
        return self.world_size // self.sharing

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def lanes(self, num_lanes: int) -> list[int]:
        """The lanes of this rank: those of its group.

        Raises:
            ConfigError: the lanes cannot be dealt out evenly.
        """
        check_lanes(num_lanes, self.data_world_size, self.sharing)
        return list(range(self.data_rank, num_lanes, self.data_world_size))

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank. Plain values of our own making only."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def gather_groups(self, value: Any) -> list[Any]:
        """The values of the first ranks of all groups, on every rank: what is counted once for the rows of a group."""
        return self.gather(value)[:: self.sharing]

    def one_of_each_group(self, values: list[T]) -> list[T]:
        """Of what all ranks have read, in their order, that of each group: all of a group have read the same.

        Raises:
            TrainingError: they have not.
        """
        for rank, value in enumerate(values):
            first = rank - rank % self.sharing
            if value != values[first]:
                raise TrainingError(
                    f"ranks {first} and {rank} train the same rows and have read different ones; "
                    "some source or decoder does not give every process the same"
                )
        return values[:: self.sharing]

    def agreed(self, act: Callable[[], T], *, named: bool = True) -> list[T]:
        """What ``act`` gives on every rank, in their order. ``act`` tells other ranks nothing itself.

        Args:
            named: whether an error that not all ranks of several machines have says which rank has it.

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
        except BrokenPipeError:  # nobody reads what this rank prints: it ends, and its launcher ends the others
            raise
        except Exception as failure:
            error = TrainingError(f"rank {self.rank}: {cause(failure)}")
            error.__cause__ = failure
        everyone = self.gather((mine, None if error is None else plain_error(error), socket.gethostname()))
        first = next((rank for rank, (_, failed, _) in enumerate(everyone) if failed is not None), None)
        if first is None:
            return [value for value, _, _ in everyone]
        raised: KosmosError = error if first == self.rank and error is not None else everyone[first][1]
        failed = sum(error is not None for _, error, _ in everyone)
        if named and self.world_size > self.local_world_size and failed < self.world_size:
            more = f" and {failed - 1:,} more of {self.world_size:,}; the first is" if failed > 1 else " alone,"
            raised.args = (f"{raised} (rank {first}{more} on {everyone[first][2]})",)
        raised.agreed = True
        raise raised

    def main_only(self, act: Callable[[], T]) -> T:
        """What ``act`` gives on the first rank, which alone does it; every rank gets it, or its error."""
        done: list[Any] = self.agreed(lambda: act() if self.is_main else None, named=False)
        result: T = done[0]
        return result

    def found_by_all(self, error: E) -> E:
        """An error that every rank has found: the first alone prints it.

        Raise it without a name for it: a frame that has one for the error that it raises and that error hold each
        other, and with them the rows and tensors of the frames above, until Python's collector comes by.
        """
        error.elsewhere = not self.is_main
        return error

    def close(self) -> None:
        """Leave the group of all ranks and those beside it, which are freed at the end of the process.

        Where a caller had made that of all ranks, it leaves those beside it alone.
        """
        if self.world_size > 1 and dist.is_initialized():
            own = [group for group in _groups() if group not in self.of_caller]
            _left.extend(own)
            atexit.unregister(_free)  # once, behind what has been registered since, for all that the process has left
            atexit.register(_free, _left)
            for group in own if self.of_caller else [None]:
                dist.destroy_process_group(group)

    def leave(self, error: BaseException) -> None:
        """As ``close``, of a run that failed. Groups of NCCL stay as they are where another rank may be gone."""
        whole = isinstance(error, Interrupted) or getattr(error, "agreed", False)
        if not whole and self.world_size > 1 and dist.is_initialized() and "nccl" in dist.get_backend_config():
            exchanges_broke()
        else:
            self.close()


@contextmanager
def joined(device: str) -> Iterator[Parallel]:
    """The processes that share a piece of work, which part as it ends, well or badly.

    Args:
        device: where they exchange tensors; ``cpu`` has no group of NCCL.
    """
    parallel = Parallel.from_environment(device)
    try:
        yield parallel
    except BaseException as error:
        parallel.leave(error)
        raise
    parallel.close()


_left: list[Any] = []
"""Groups that runs of this process have left, which are freed at its end."""


def _groups() -> list[Any]:
    return [*dist.distributed_c10d._world.pg_map]


def _free(groups: list[Any]) -> None:
    """Join the threads of gloo while the interpreter still runs, and without its lock.

    A thread that frees the tensor of the last exchange later than this aborts the process ("terminate called without
    an active exception"). DDP, where it is the last to hold the group, joins them with the interpreter locked, which
    the thread may be waiting for (both seen with torch 2.11): its part ends first. Meshes, which torch keeps, and
    sharded models that an error's traceback keeps hold groups too.
    """
    gc.collect()
    gc.unfreeze()  # nothing below sees what was frozen
    # An object refers to its class: found so, 300,000 of others need not be looked at one by one.
    for found in gc.get_referrers(*_with_subclasses(DistributedDataParallel), *_with_subclasses(DeviceMesh)):
        if issubclass(kind := type(found), DistributedDataParallel):  # not of all is ``isinstance`` without effect
            _drop(found, "logger", "reducer", "process_group")
        elif issubclass(kind, DeviceMesh):
            _drop(found, "_pg_registry")
    del found
    for holder in gc.get_referrers(*groups):
        parts = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
        for name in [name for name, part in parts.items() if any(part is group for group in groups)]:
            del parts[name]
    groups.clear()


def _with_subclasses(kind: type) -> list[type]:
    found = [kind]
    for one in found:  # which grows meanwhile
        found.extend(type.__subclasses__(one))
    return found


def _drop(holder: object, *parts: str) -> None:
    for part in parts:
        vars(holder).pop(part, None)


def plain_error(error: E) -> E:
    """The error as another rank has it: without traceback, and not printed again."""
    told = copy.copy(error)
    told.__cause__ = told.__context__ = None
    told.elsewhere = True
    return told.with_traceback(None)
