"""Matrices that no process has whole, given whole to one process each: what is done to them is done once.

Where a step needs a whole matrix and every process has a part of each, gathering all of them everywhere would have all
processes do the same work. Of k matrices of one shape each process gets k / W whole ones in one exchange, and parts of
all go back in another. Copies that processes hold (DDP) are shared out likewise, and stay copies to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from kosmos.errors import ConfigError

Spread = tuple[DeviceMesh, tuple[Placement, ...]] | None
"""How processes hold a stack of matrices; None where this process has all of it, or needs nobody for what it has."""


def spread_of(matrix: Tensor) -> Spread:
    """How processes hold a stack of matrices each of which is held as ``matrix`` [..., m, n]. All call this alike.

    Raises:
        ConfigError: its rows or columns are cut twice.
    """
    if not isinstance(matrix, DTensor):
        copies = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        return (_of_all(matrix.device.type), (Replicate(),)) if copies else None
    if all(p == Shard(0) for p in matrix.placements) and matrix.ndim > 2:
        return None  # each process has whole matrices of a stack
    if any(type(p) not in (Shard, Replicate) for p in matrix.placements):
        raise ConfigError(
            "train.optimizer: muon needs whole matrices, and with parallel.tensor they are cut twice; leave "
            "parallel.tensor out (parallel.strategy=fsdp shards them too), or take another optimizer"
        )
    return matrix.device_mesh, tuple(Shard(p.dim + 1) if isinstance(p, Shard) else p for p in matrix.placements)


def processes_of(spread: Spread) -> int:
    """How many share the matrices out."""
    return 1 if spread is None else spread[0].size()


def on_whole(act: Callable[[Tensor], Tensor], matrices: Sequence[Tensor], like: Tensor, spread: Spread) -> Tensor:
    """What ``act`` makes of each of k matrices, which keeps its shape. All processes call this alike.

    Args:
        act: takes whole matrices [i, ..., m, n], which may be none, to as many.
        matrices: k, what this process has of each.
        like: one of their parameters.
        spread: of ``like``, as of ``spread_of``.

    Returns:
        [k, ...], what this process has of each.
    """
    stack = torch.stack(list(matrices))
    if spread is None:
        return act(stack)
    mesh, held = spread
    shape = torch.Size((len(matrices), *like.shape))
    stride = torch.empty(shape, device="meta").stride()
    each_one = (Shard(0),) * mesh.ndim

    def shared(part: Tensor, now: Sequence[Placement]) -> DTensor:
        return DTensor.from_local(part.contiguous(), mesh, now, run_check=False, shape=shape, stride=stride)

    whole = _exchanged(shared(stack.to(mesh.device_type), held), each_one, range(mesh.ndim))
    back = _exchanged(shared(act(whole.to_local()), each_one), held, reversed(range(mesh.ndim)))
    return back.to_local().to(stack.device)


def _exchanged(tensor: DTensor, wanted: Sequence[Placement], dims: Iterable[int]) -> DTensor:
    """``tensor`` held as ``wanted``, one dimension of the mesh after another: PyTorch warns of two at once."""
    placements = list(tensor.placements)
    for dim in dims:
        # gloo exchanges no shards: PyTorch would gather them too, and warn of it.
        for placement in (Replicate(), wanted[dim]) if tensor.device_mesh.device_type == "cpu" else (wanted[dim],):
            placements[dim] = placement
            tensor = tensor.redistribute(placements=placements)
    return tensor


@cache
def _of_all(device: str) -> DeviceMesh:
    return init_device_mesh(device, (dist.get_world_size(),))
