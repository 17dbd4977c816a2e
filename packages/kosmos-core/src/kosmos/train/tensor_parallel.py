"""Tensor parallelism for the built-in decoder: the ranks of a group share the matrices of every block.

Queries, keys, values, gate and inner projections are cut by heads or features, output projections by columns, so that
a block exchanges twice: the sums after its two output projections. Norms, embedding and head are on every rank.

Source: Megatron-LM, arXiv 1909.08053, by ``torch.distributed.tensor.parallel``.

Letters: T = tokens, D = features of a norm, N = ranks of the group.
"""

from __future__ import annotations

import logging
from typing import Any, cast

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from kosmos.model.decoder import Decoder
from kosmos.model.norms import LayerNorm, RMSNorm
from kosmos.model.precision import exact_type, product_type

# It would have the norm of all gradients summed over both dimensions of the mesh at once, which costs one number twice.
logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)


def share_matrices(decoder: Decoder, mesh: DeviceMesh) -> None:
    """Cut the decoder's blocks over the ranks of a mesh of one dimension. All ranks have the same weights before."""
    for block in decoder.blocks:
        plan = {name: style for name, style in _plan().items() if _has_parameters(block, name)}
        parallelize_module(block, mesh, plan)
        for part in cast(Any, block).attention, cast(Any, block).feed_forward:
            if isinstance(part.sub_norm, RMSNorm | LayerNorm):
                part.sub_norm = _shared_norm(part.sub_norm, mesh)


def _plan() -> dict[str, ParallelStyle]:
    """Module of a block to how it is cut."""
    return {
        "attention_norm": _OnLayout(Replicate()),
        "attention": _whole_input(4),
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.query_norm": _OnLayout(Shard(1)),
        "attention.key_norm": _OnLayout(Shard(1)),
        "attention.output": RowwiseParallel(),
        "feed_forward_norm": _OnLayout(Replicate()),
        "feed_forward": _whole_input(1),
        "feed_forward.gate": ColwiseParallel(),
        "feed_forward.inner": ColwiseParallel(),
        "feed_forward.output": RowwiseParallel(),
    }


def cut_dimension(name: str) -> int | None:
    """Along which dimension ranks share a parameter of a block, by its name there; None where each holds all of it."""
    module, _, last = name.rpartition(".")
    if module.endswith(".sub_norm"):
        return 0
    style = _plan().get(module)
    if isinstance(style, ColwiseParallel):
        return 0
    return 1 if isinstance(style, RowwiseParallel) and last == "weight" else None


def _has_parameters(block: nn.Module, name: str) -> bool:
    """Whether this shape of a block has that part."""
    return any(parameter.startswith(f"{name}.") for parameter, _ in block.named_parameters())


def _whole_input(arguments: int) -> PrepareModuleInput:
    """The first argument is known to be the same on all ranks: its gradients are summed once for all that read it."""
    layouts = (Replicate(), *[None] * (arguments - 1))
    return PrepareModuleInput(input_layouts=layouts, desired_input_layouts=layouts)


class _OnLayout(ParallelStyle):
    """A norm that every rank has, over inputs of one layout; its gradient is that of all of them."""

    def __init__(self, layout: Replicate | Shard) -> None:
        super().__init__()
        self.layout = layout

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def enter(_: nn.Module, inputs: tuple[Tensor], mesh: DeviceMesh) -> DTensor:
            return DTensor.from_local(inputs[0], mesh, [self.layout], run_check=False)

        def leave(_: nn.Module, output: DTensor, mesh: DeviceMesh) -> Tensor:
            return output.to_local()

        # torch's annotations say that both return nothing, its documentation what they return
        return distribute_module(module, device_mesh, None, cast(Any, enter), cast(Any, leave))


def _shared_norm(norm: RMSNorm | LayerNorm, mesh: DeviceMesh) -> nn.Module:
    """The norm over features that are cut: each rank has its part of the weights, and statistics are summed."""
    kind = SharedRMSNorm if isinstance(norm, RMSNorm) else SharedLayerNorm
    shared = kind(norm.weight.shape[0], eps=norm.eps)
    shared.mesh = mesh
    for name, parameter in norm.named_parameters():
        cut = nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)]), parameter.requires_grad)
        shared.register_parameter(name, cut)
    return shared


class SharedRMSNorm(RMSNorm):
    """``RMSNorm`` over the features of all ranks: [T, D / N] -> [T, D / N]."""

    mesh: DeviceMesh

    def forward(self, x: Tensor) -> Tensor:
        exact = x.to(exact_type(x))
        square = _mean(exact.square(), self.mesh)
        return (exact * (square + self.eps).rsqrt() * _local(self.weight).to(exact.dtype)).to(product_type(x))


class SharedLayerNorm(LayerNorm):
    """``LayerNorm`` over the features of all ranks: [T, D / N] -> [T, D / N]."""

    mesh: DeviceMesh

    def forward(self, x: Tensor) -> Tensor:
        exact = x.to(exact_type(x))
        centred = exact - _mean(exact, self.mesh)
        scaled = centred * (_mean(centred.square(), self.mesh) + self.eps).rsqrt()
        weight, bias = (_local(p).to(exact.dtype) for p in (self.weight, self.bias))
        return (scaled * weight + bias).to(product_type(x))


def _mean(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Mean over the last dimension on all ranks: [T, D / N] -> [T, 1]."""
    total = x.sum(-1, keepdim=True) / (x.shape[-1] * mesh.size())
    shared = DTensor.from_local(total, mesh, [Partial()], run_check=False).redistribute(placements=[Replicate()])
    return shared.to_local(grad_placements=[Partial()])


def _local(parameter: Tensor) -> Tensor:
    assert isinstance(parameter, DTensor)
    return parameter.to_local()
