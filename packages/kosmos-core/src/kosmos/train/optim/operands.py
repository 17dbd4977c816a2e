"""One parameter as an optimizer's arithmetic sees it: flat tensors of this process, and the numbers of the step."""

# n = elements of the parameter on this process, B = elements of a block of 8-bit momentum

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate

Cut = tuple[DeviceMesh, tuple[Placement, ...]] | None
"""How sums over the parts of a tensor make that of the whole; None where every process has all of it."""


@dataclass(frozen=True)
class Operands:
    """The tensors of one parameter, contiguous and of one dimension; they are changed in place."""

    weight: Tensor
    """[n] fp32 or bf16."""
    gradient: Tensor
    """[n]."""
    momentum: Tensor
    """[n] floating point, or int8 codes when there are ``scales``."""
    scales: Tensor | None = None
    """[n / B] fp32: what a code of 1 stands for."""
    low: Tensor | None = None
    """[n] int8 or int16: bits of the weight below those of bf16; see ``masters``."""

    @property
    def block(self) -> int:
        """Elements of a block of 8-bit momentum; 1 where there are none."""
        return 1 if self.scales is None else self.weight.numel() // self.scales.numel()

    def elements(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weight, gradient and momentum."""
        return self.weight, self.gradient, self.momentum

    def parts(self, most: int) -> Iterator[tuple[int, Operands]]:
        """Consecutive parts as of ``equal_parts``, each with where it starts."""
        for part in equal_parts(self.weight.numel(), most, self.block):
            yield part.start, self._part(part.start, part.stop)

    def _part(self, start: int, end: int) -> Operands:
        scales = None if self.scales is None else self.scales[start // self.block : end // self.block]
        low = None if self.low is None else self.low[start:end]
        return Operands(self.weight[start:end], self.gradient[start:end], self.momentum[start:end], scales, low)


@dataclass(frozen=True)
class Step:
    """The numbers of one step of Lion for one parameter."""

    rate: float
    """Learning rate."""
    decay: float
    """Weight decay; a step takes ``rate * decay`` of a weight."""
    beta1: float
    beta2: float
    noise: int = 0
    """Key of the random bits, uint32; see ``noise``."""
    stochastic: bool = False
    """Round bf16 weights at random instead of to nearest."""
    scale: float = 1.0
    """What gradients are multiplied by as they are read, by compiled steps alone: see ``Parameterwise.scale_next``."""


def gradient_of(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None and not parameter.grad.is_sparse, "gradients are dense"
    return parameter.grad


def equal_parts(count: int, most: int, block: int = 1) -> Iterator[slice]:
    """As few parts as can be, of nearly one length: a short last one would leave threads without work.

    Args:
        count: elements, a multiple of ``block``.
        most: of a part's elements; one block may be more.
        block: elements that stay together.
    """
    blocks, most_blocks = count // block, max(1, most // block)
    parts = -(-blocks // most_blocks)
    for index in range(parts):
        yield slice(blocks * index // parts * block, blocks * (index + 1) // parts * block)


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor, which is all of it unless it is a DTensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def cut_of(tensor: Tensor) -> Cut:
    """How a tensor is shared out over processes."""
    if not isinstance(tensor, DTensor):
        return None
    # Not by is_shard: torch's strided shards, of matrices that are shared and sharded, say that they are none.
    return tensor.device_mesh, tuple(Replicate() if p.is_replicate() else Partial() for p in tensor.placements)


def summed(part: Tensor, cut: Cut) -> Tensor:
    """The sum of ``part``, element by element, over the processes that share what was cut so. All of them call this."""
    return part if cut is None else DTensor.from_local(part, *cut, run_check=False).full_tensor()
