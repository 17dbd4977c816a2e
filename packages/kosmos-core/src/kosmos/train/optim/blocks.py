"""Momentum in 8 bits: int8 codes and one fp32 scale for each block of a row.

A code stands for a share x of the block's largest magnitude by 127 * 2x / (1 + |x|), which is finer near zero, and is
rounded at random, which is right in the mean. Rounded to nearest, a momentum stalls where a step moves it by less than
half a code: losses of a small network then ran up to 1.5 % beside those of fp32, at random 0.3 %.

A block is a part of one row of the parameter (its first dimension), so that a parameter sharded by rows keeps its
blocks whole.

Sources: blocks, arXiv 2110.02861; the curve, arXiv 2602.23349 (FlashOptim), which rounds groups of 32 to nearest.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from kosmos.errors import CheckpointError
from kosmos.train.optim.noise import random_bits
from kosmos.train.optim.operands import local

LEAST = 64
"""Smallest block: a scale adds at most 4 / 64 bytes an element."""
TINY = 1e-30
"""Scales under it mean zero: their inverses would overflow."""
CODES = 0x5BF03635
"""Sets the random bits of codes apart from those of weights."""


def block_of(parameter: Tensor, most: int) -> int | None:
    """Elements of a block: the largest divisor of a row up to ``most``; None where no block would be worth a scale.

    Vectors (norms, biases) and rows without a divisor from ``LEAST`` on stay unquantized.
    """
    if parameter.ndim < 2 or not parameter.numel() or not _keeps_rows(parameter):
        return None
    return _divisor(_row(parameter), most)


@functools.cache
def _divisor(row: int, most: int) -> int | None:
    return next((size for size in range(min(most, row), LEAST - 1, -1) if row % size == 0), None)


def _row(parameter: Tensor) -> int:
    """Elements of a row on this process; a shard may hold no row."""
    part = local(parameter)
    return part.numel() // part.shape[0] if part.shape[0] else parameter.numel() // parameter.shape[0]


def _keeps_rows(parameter: Tensor) -> bool:
    """Whether blocks of the local rows are blocks of whole rows, or of equal parts of them."""
    if not isinstance(parameter, DTensor):
        return True
    sizes = parameter.device_mesh.shape
    cut = [(p.dim, n) for p, n in zip(parameter.placements, sizes, strict=True) if isinstance(p, Shard)]
    return all(dim == 0 or (dim == 1 and parameter.shape[1] % size == 0) for dim, size in cut)


def zero_scales(parameter: Tensor, block: int) -> Tensor:
    """Scales of all blocks, [rows, blocks of a row]; a DTensor sharded like the parameter if that is one."""
    part = local(parameter)
    scales = torch.zeros(part.shape[0], _row(parameter) // block, dtype=torch.float32, device=part.device)
    if not isinstance(parameter, DTensor):
        return scales
    shape = torch.Size((parameter.shape[0], parameter.numel() // parameter.shape[0] // block))
    made = DTensor.from_local(
        scales, parameter.device_mesh, parameter.placements, run_check=False, shape=shape, stride=(shape[1], 1)
    )
    return made.to(part.device)  # torch moves parts to the mesh's device, where offloaded parameters are not


def shard_scales(scales: Tensor, parameter: Tensor) -> Tensor:
    """Scales sharded like their parameter: a checkpoint gives them back whole, since their shape is another.

    Where rows are cut inside of a block, as over another number of ranks, its scale is that of both parts.

    Raises:
        CheckpointError: parts would be smaller than blocks can be.
    """
    if not isinstance(parameter, DTensor) or isinstance(scales, DTensor):
        return scales
    columns = parameter.numel() // parameter.shape[0]
    block = columns // scales.shape[1]
    part = math.gcd(block, _row(parameter))
    if part < LEAST:
        raise CheckpointError(
            f"8-bit momentum in blocks of {block} of {columns} columns cannot be cut into rows of {_row(parameter)}: "
            "leave parallel.tensor as it was"
        )
    scales = scales.repeat_interleave(block // part, 1)
    made = distribute_tensor(scales, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return made.to(local(parameter).device)  # as above


def decode(codes: Tensor, scales: Tensor, out: Tensor, spare: Tensor) -> None:
    """Momentum of the codes.

    Args:
        codes: int8 [n].
        scales: fp32 [n / B], the largest magnitude of each block.
        out: fp32 [n].
        spare: fp32 [n], overwritten.
    """
    torch.abs(out.copy_(codes), out=spare)
    out.div_(spare.sub_(254)).view(len(scales), -1).mul_(-scales[:, None])  # c / (254 - |c|)


def encode(
    value: Tensor, codes: Tensor, scales: Tensor, spare: Tensor, bits: Tensor, *, noise: int, start: int
) -> None:
    """Codes and scales of a momentum.

    Args:
        value: fp32 [n], overwritten.
        codes: int8 [n].
        scales: fp32 [n / B].
        spare: fp32 [n], overwritten.
        bits: int32 [n], overwritten.
        noise: key of the random bits.
        start: place of the first element.
    """
    torch.amax(torch.abs(value, out=spare).view(len(scales), -1), 1, out=scales)
    inverse = torch.where(scales > TINY, 1 / scales, 0)
    value.view(len(scales), -1).mul_(inverse[:, None])
    value.div_(torch.abs(value, out=spare).add_(1)).mul_(254)
    spare.copy_(random_bits(noise + CODES, start, bits, spare.view(torch.int32)))
    codes.copy_(value.add_(spare, alpha=2**-16).floor_())
