"""A model over several processes, by PyTorch's own engine: FSDP2, its hybrid over groups of ranks, or DDP.

In every case gradients are summed over rows and parts of rows, never averaged: the loss is divided by the global count
of targets before backward. Neighbouring ranks may share rows (``kosmos.model.sequence``), and those that have the same
part of a row may share matrices (``kosmos.train.tensor_parallel``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from kosmos.config import ParallelConfig
from kosmos.data.batch import PackedBatch
from kosmos.errors import ConfigError
from kosmos.model.decoder import Decoder
from kosmos.model.loss import TokenLosses
from kosmos.model.omni import OmniModel, Stream
from kosmos.model.quantize import packed_of
from kosmos.model.weights import materialize
from kosmos.runtime.parallel import Parallel
from kosmos.train.sharing import share_rows
from kosmos.train.tensor_parallel import share_matrices

# From torch 2.14 on, of every stream of every run. Nothing is changed in place in what a stream gives.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


@dataclass(frozen=True)
class Distributed:
    """A model as the ranks of a run train it together."""

    losses: Callable[[PackedBatch], TokenLosses]
    """The forward pass. All ranks call it equally often."""
    row: Callable[[bool], AbstractContextManager[Any]]
    """Around forward and backward of a row; given whether it is the last of the step: gradients are exchanged then."""
    part: int = 0
    """Number of this rank's part of its rows, where ranks share rows."""


def check_strategy(settings: ParallelConfig, parallel: Parallel) -> None:
    """Whether so many ranks can train by the strategy of the run file. A process alone may, whatever its shards.

    Raises:
        ConfigError: names the setting that does not fit.
    """
    if settings.offload and parallel.world_size == 1:
        raise ConfigError(
            "parallel.offload: only sharded runs offload; start several processes (kosmos train --nproc N), or set "
            "parallel.offload=false"
        )
    if settings.offload and settings.strategy == "ddp":
        raise ConfigError("parallel.offload: not with strategy ddp, where every rank holds the whole model; use fsdp")
    if parallel.world_size > 1:
        mesh_shape(parallel, settings)


def layout(settings: ParallelConfig, parallel: Parallel) -> str:
    """How the ranks of a run share its work, in a few words; nothing for a process alone."""
    if parallel.world_size == 1:
        return ""
    shape = mesh_shape(parallel, settings)
    kind = "fsdp" if settings.strategy == "auto" else settings.strategy
    words = [kind if len(shape) == 1 else f"{kind}, {shape[0]} groups of {shape[1]}"]
    for name, ranks in (("tensor", settings.tensor), ("sequence", settings.sequence)):
        words += [f"{name} {ranks}"] if ranks > 1 else []
    words += ["offload"] if settings.offload else []
    return f"{parallel.world_size}: {', '.join(words)}"


def check_types(model: OmniModel, settings: ParallelConfig, parallel: Parallel) -> None:
    """Whether what is sharded together is trained in one type, as FSDP needs it. Frozen parameters may have any.

    Raises:
        ConfigError: names parameters of two types.
    """
    if parallel.world_size == 1 or settings.strategy == "ddp":
        return
    taken: set[int] = set()
    for unit in units_of(model):
        found: dict[torch.dtype, str] = {}
        for name, parameter in unit.named_parameters():
            if parameter.requires_grad and id(parameter) not in taken:
                taken.add(id(parameter))
                found.setdefault(parameter.dtype, name)
        if len(found) > 1:
            told = ", ".join(f"{name} is in {str(dtype).removeprefix('torch.')}" for dtype, name in found.items())
            raise ConfigError(
                f"parallel.strategy: shards of {type(unit).__name__} are trained in one type, and {told}; leave out "
                "the option that makes the part so (backbone.dtype) or its lora.whole, or set parallel.strategy=ddp"
            )


def distribute(
    model: OmniModel,
    parallel: Parallel,
    settings: ParallelConfig,
    device: torch.device,
    dtype: torch.dtype,
    *,
    draw: bool = True,
) -> Distributed:
    """Move the model to its device and spread it over the ranks.

    Args:
        settings: those that ``check_strategy`` has passed.
        dtype: of matrix products; sharded parameters are gathered in it, and reduced in fp32.
        draw: weights that have no memory yet are drawn; False where a checkpoint is loaded next.
    """
    if parallel.world_size == 1:
        materialize(model, device, draw=draw)
        model.to(device)
        return Distributed(model, lambda last: nullcontext())
    for stream in _streams(model):
        stream.touch = True
    part = share_rows(model, parallel, settings, device)
    model.touch_around_blocks = settings.strategy != "ddp"
    if settings.strategy == "ddp":
        materialize(model, device, draw=draw)
        return _replicate(model.to(device), device, part)
    distributed = _shard(model, _meshes(model, parallel, settings, device), settings, device, dtype, part)
    materialize(model, torch.device("cpu") if settings.offload else device, draw=draw)
    for parameter in packed_of(model):  # each rank holds all of them
        parameter.data = parameter.data.to(device)
    return distributed


def _replicate(model: OmniModel, device: torch.device, part: int) -> Distributed:
    model.touch_backbone = True
    ids = [device.index] if device.type == "cuda" else None
    wrapped = DistributedDataParallel(model, device_ids=ids, broadcast_buffers=False, gradient_as_bucket_view=True)
    wrapped.register_comm_hook(None, _sum_bucket)
    return Distributed(wrapped, lambda last: nullcontext() if last else wrapped.no_sync(), part)


def _sum_bucket(state, bucket):  # type: ignore[no-untyped-def]  # DDP compares annotations, which are strings here
    """In place of DDP's mean."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


def mesh_shape(parallel: Parallel, settings: ParallelConfig) -> tuple[int, ...]:
    """(ranks,) or, for hsdp, (groups, ranks of a group). Raises as ``check_strategy``."""
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


class _Meshes(NamedTuple):
    """Over which ranks parameters are sharded."""

    blocks: DeviceMesh
    """Those of the backbone's blocks: ranks that have the same part of the matrices."""
    others: DeviceMesh


def _meshes(model: OmniModel, parallel: Parallel, settings: ParallelConfig, device: torch.device) -> _Meshes:
    """Cuts the matrices first where ranks share them."""
    shape = mesh_shape(parallel, settings)
    every = init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    if settings.tensor == 1:
        return _Meshes(every, every)
    shape = (parallel.world_size // settings.tensor, settings.tensor)
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=("shard", "tensor"))
    share_matrices(cast(Decoder, model.backbone), mesh["tensor"])
    return _Meshes(mesh["shard"], every)


def _shard(
    model: OmniModel,
    meshes: _Meshes,
    settings: ParallelConfig,
    device: torch.device,
    dtype: torch.dtype,
    part: int,
) -> Distributed:
    low = dtype if dtype != torch.float32 else None
    how: dict[str, Any] = {
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=low, reduce_dtype=torch.float32 if low else None, cast_forward_inputs=False
        ),
        "offload_policy": CPUOffloadPolicy(pin_memory=device.type == "cuda") if settings.offload else OffloadPolicy(),
    }
    units = [(block, meshes.blocks, 1) for block in _blocks(model.backbone)]
    # What is not cut has the same gradient on all ranks of a group that shares matrices: it counts once.
    units += [(module, meshes.others, settings.tensor) for module in (*_streams(model), model)]
    for module, mesh, copies in units:
        unit = fully_shard(module, mesh=mesh, ignored_params=set(packed_of(model)), **how)
        unit.set_gradient_divide_factor(float(copies))
        unit.set_force_sum_reduction_for_comms(True)
    return Distributed(model, lambda last: _exchange_when(model, last), part)


def _exchange_when(model: Any, last: bool) -> AbstractContextManager[None]:
    model.set_requires_gradient_sync(last)
    return nullcontext()


def units_of(model: OmniModel) -> list[nn.Module]:
    """What is sharded, and gathered, at once: the model last, with what the others leave.

    A stream is one unit: how often an encoder calls its own parts may depend on the items of a rank's row.
    """
    return [*_blocks(model.backbone), *_streams(model), model]


def _blocks(backbone: nn.Module) -> Iterable[nn.Module]:
    return list(getattr(backbone, "blocks", ()))


def _streams(model: OmniModel) -> list[Stream]:
    return [stream for stream in model.streams.values() if isinstance(stream, Stream)]


def forget_forward(model: nn.Module) -> None:
    """Settle a model, and drop what torch notes of the order of a forward pass: a backward pass, which would, never
    comes."""
    settle(model)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            state: Any = module._get_fsdp_state()
            state._comm_ctx.post_forward_order.clear()
            if (group := state._fsdp_param_group) is not None:
                group._post_forward_indices.clear()


def settle(model: nn.Module) -> None:
    """Shard again what a forward pass without backward, such as scoring, has left gathered: torch keeps the root's."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
