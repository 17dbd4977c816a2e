"""A model over several processes, by PyTorch's own engine: FSDP2, its hybrid over groups of ranks, or DDP.

In every case gradients are summed over ranks, never averaged: the loss is divided by the global count of targets
before backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from kosmos.config import ParallelConfig
from kosmos.data.batch import PackedBatch
from kosmos.errors import ConfigError
from kosmos.model.loss import TokenLosses
from kosmos.model.omni import OmniModel, Stream
from kosmos.runtime.parallel import Parallel


@dataclass(frozen=True)
class Distributed:
    """A model as the ranks of a run train it together."""

    losses: Callable[[PackedBatch], TokenLosses]
    """The forward pass. All ranks call it equally often."""
    row: Callable[[bool], AbstractContextManager[Any]]
    """Around forward and backward of a row; given whether it is the step's last, after which gradients are exchanged."""


def distribute(
    model: OmniModel, parallel: Parallel, settings: ParallelConfig, device: torch.device, dtype: torch.dtype
) -> Distributed:
    """Move the model to its device and spread it over the ranks.

    Args:
        dtype: of matrix products; sharded parameters are gathered in it, and reduced in fp32.

    Raises:
        ConfigError: the strategy does not fit the number of ranks.
    """
    strategy = settings.strategy
    if parallel.world_size == 1:
        if settings.offload:
            raise ConfigError(
                "parallel.offload: only sharded runs offload; start several processes (kosmos train --nproc N)"
            )
        model.to(device)
        return Distributed(model, lambda last: nullcontext())
    for stream in _streams(model):
        stream.touch = True
    if strategy == "ddp":
        if settings.offload:
            raise ConfigError(
                "parallel.offload: not with strategy ddp, where every rank holds the whole model; use fsdp"
            )
        return _replicate(model.to(device), device)
    return _shard(model, _mesh_shape(parallel, settings), settings, device, dtype)


def _replicate(model: OmniModel, device: torch.device) -> Distributed:
    model.touch_backbone = True
    ids = [device.index] if device.type == "cuda" else None
    wrapped = DistributedDataParallel(model, device_ids=ids, broadcast_buffers=False, gradient_as_bucket_view=True)
    wrapped.register_comm_hook(None, _sum_bucket)
    return Distributed(wrapped, lambda last: nullcontext() if last else wrapped.no_sync())


def _sum_bucket(state, bucket):  # type: ignore[no-untyped-def]  # DDP compares annotations, which are strings here
    """In place of DDP's mean."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


def _mesh_shape(parallel: Parallel, settings: ParallelConfig) -> tuple[int, ...]:
    """(ranks,) or, for hsdp, (groups, ranks of a group)."""
    world = parallel.world_size
    if settings.strategy != "hsdp":
        if settings.shards is not None:
            raise ConfigError("parallel.shards: only strategy hsdp shards within groups of ranks")
        return (world,)
    shards = settings.shards or parallel.local_world_size
    if world % shards or shards == world:
        raise ConfigError(
            f"parallel.shards: {world} ranks cannot be split into several groups of {shards}; "
            "state a divisor of the number of ranks, or use strategy fsdp"
        )
    return (world // shards, shards)


def _shard(
    model: OmniModel, shape: tuple[int, ...], settings: ParallelConfig, device: torch.device, dtype: torch.dtype
) -> Distributed:
    names = ("replicate", "shard")[-len(shape) :]
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
    low = dtype if dtype != torch.float32 else None
    how: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32 if low else None),
        "offload_policy": CPUOffloadPolicy(pin_memory=device.type == "cuda") if settings.offload else OffloadPolicy(),
    }
    # A stream is one unit: how often an encoder calls its own parts may depend on the items of a rank's row.
    for part in (*_blocks(model.backbone), *_streams(model)):
        fully_shard(part, **how)
    fully_shard(model, **how)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return Distributed(model, lambda last: _exchange_when(model, last))


def _exchange_when(model: Any, last: bool) -> AbstractContextManager[None]:
    model.set_requires_gradient_sync(last)
    return nullcontext()


def _blocks(backbone: nn.Module) -> Iterable[nn.Module]:
    return list(getattr(backbone, "blocks", ()))


def _streams(model: OmniModel) -> list[Stream]:
    return [stream for stream in model.streams.values() if isinstance(stream, Stream)]


def fill_missing_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Zeros for a parameter that no row of the step used, so that it is decayed at any number of ranks alike."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def whole(tensor: Tensor) -> Tensor:
    """A tensor that may be sharded, whole. All ranks call this."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()
