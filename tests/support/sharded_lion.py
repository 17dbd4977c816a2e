"""Lion, Muon, and AdamW for bf16 weights, on parameters sharded over processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from kosmos.errors import CheckpointError, ConfigError
from kosmos.train.optim import blocks
from kosmos.train.optim.lion import Lion
from kosmos.train.optim.muon import Muon
from kosmos.train.optim.release import GradientRelease
from kosmos.train.optim.states import flat

SHAPES = ((5, 192), (64, 64), (1, 128), (7,), (64, 64), (64, 64), (5, 192))
"""Rows that two processes share evenly, unevenly, and so that one has none; three matrices of one shape, and two."""
STEPS = 3


def values(dtype: torch.dtype, random: torch.Generator) -> list[torch.Tensor]:
    return [torch.randn(shape, generator=random).to(dtype) for shape in SHAPES]


def alone(options: dict[str, Any], dtype: torch.dtype) -> list[torch.Tensor]:
    """Parameters after the steps, on one process."""
    random = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(v) for v in values(dtype, random)]
    return _step(parameters, options, random, dtype, lambda gradient, _: gradient)


Job = tuple[Callable[..., Any], tuple[Any, ...]]


def in_one_start(rank: int, world_size: int, folder: Path, jobs: Mapping[str, Job]) -> None:
    """One process of several: writes what each job gives it, or the error that it ends with, to ``folder``."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world_size)
    torch.set_num_threads(1)
    for name, (act, arguments) in jobs.items():
        try:
            found = act(rank, world_size, *arguments)
        except (CheckpointError, ConfigError) as refused:
            found = str(refused)
        torch.save(found, folder / f"{name} {rank}.pt")
    dist.destroy_process_group()


def together(rank: int, world_size: int, placement: str, options: Mapping[str, Any]) -> list[torch.Tensor]:
    """Parameters after the steps of one process of several, whole."""
    mesh = init_device_mesh("cpu", (world_size,))
    placed = [{"rows": Shard(0), "columns": Shard(1)}.get(placement, Replicate())]
    dtype, random = options["dtype"], torch.Generator().manual_seed(0)

    def spread(value: torch.Tensor, like: int) -> torch.Tensor:
        if placement == "processes":  # as DDP has them: each knows nothing of the others' copies
            return value.clone()
        return distribute_tensor(value, mesh, placed if value.ndim > 1 else [Replicate()])

    parameters = [nn.Parameter(spread(v, i)) for i, v in enumerate(values(dtype, random))]
    after = _step(parameters, options, random, dtype, spread)
    return [p.full_tensor() if isinstance(p, DTensor) else p for p in after]


def _step(parameters: Any, options: dict[str, Any], random: torch.Generator, dtype: torch.dtype, spread: Any) -> Any:
    settings = {name: value for name, value in options.items() if name not in ("kind", "dtype")}
    optimizer = options.get("kind", Lion)(parameters, 1e-2, weight_decay=0.1, **settings)
    for _ in range(STEPS):
        for i, (parameter, gradient) in enumerate(zip(parameters, values(dtype, random), strict=True)):
            parameter.grad = spread(gradient, i)
        optimizer.step()
        for state in optimizer.state.values():
            if isinstance(state.get("scales"), DTensor):
                state["scales"] = state["scales"].full_tensor()  # as a checkpoint gives them back
    return [p.detach() for p in parameters]


def cut_anew(rank: int, world_size: int, columns: int, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One process: the momentum of its columns, from scales of a checkpoint of one process."""
    random = torch.Generator().manual_seed(0)
    codes = torch.randint(-127, 128, (3, columns), generator=random).to(torch.int8)
    scales = torch.rand(3, columns // block, generator=random)
    parameter = distribute_tensor(torch.zeros(3, columns), init_device_mesh("cpu", (world_size,)), [Shard(1)])
    mine, found = codes.chunk(world_size, 1)[rank].reshape(-1), []
    for whole, of in ((blocks.shard_scales(scales, parameter), mine), (scales, codes.view(-1))):
        out, own = torch.empty(len(of)), flat(whole)
        blocks.decode(of, own, out, torch.empty(len(of)))
        found.append(out.view(3, -1))
    return found[0], found[1].chunk(world_size, 1)[rank].clone()


def released(rank: int, world_size: int) -> list[list[torch.Tensor]]:
    """One process of FSDP2: its weights after steps during the backward pass, and after ordinary ones."""
    return [_fully_sharded(rank, world_size, release) for release in (True, False)]


def cut_twice(rank: int, world_size: int) -> None:
    """A matrix whose rows two groups of ranks share, as FSDP cuts what ``parallel.tensor`` has cut."""
    mesh = init_device_mesh("cpu", (1, world_size), mesh_dim_names=("shard", "tensor"))
    matrix = nn.Parameter(distribute_tensor(torch.zeros(8, 8), mesh["tensor"], [Shard(0)]))
    layer = nn.Linear(8, 8, bias=False)
    layer.weight = matrix
    fully_shard(layer, mesh=mesh["shard"])
    Muon(layer.parameters())


def released_with_exchanges(rank: int, world_size: int) -> None:
    """What a step needs of other processes, during the backward pass."""
    GradientRelease(Muon([nn.Parameter(torch.zeros(4, 4))]))


def _fully_sharded(rank: int, world_size: int, release: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 97), nn.ReLU(), nn.Linear(97, 64))
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=init_device_mesh("cpu", (world_size,)))
    optimizer = Lion(model.parameters(), 1e-3, weight_decay=0.1, block=64)
    during = GradientRelease(optimizer) if release else None
    for step in range(STEPS):
        torch.manual_seed(world_size * step + rank)
        model(torch.randn(8, 64)).square().sum().backward()
        if during is None:
            optimizer.step()
            optimizer.zero_grad()
        else:
            assert all(p.grad is None for p in model.parameters())
            during.finish()
    return [p.full_tensor() for p in model.parameters()]  # type: ignore[attr-defined]
