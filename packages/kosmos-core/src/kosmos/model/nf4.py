"""Frozen weights in 4 bits: the NF4 of QLoRA (arXiv 2305.14314), in blocks of 64 values with a scale in bf16.

A weight [out, in] is packed into uint8 [out, 34 * in / 64]: first all codes, two in a byte, then all scales. The shape
tells that of the weight; as shards or rows its bytes mean nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64
"""Values that share a scale; a weight's rows are multiples of it."""
_BYTES = BLOCK // 2 + 2
"""Of a block."""
PACKED = "weight_nf4"
"""Name of the parameter that stands for a layer's ``weight``."""
BUFFERS = ("nf4_pairs", "nf4_type")
"""Names of the buffers that such a layer has: ``value_pairs``, and its type."""

# Appendix E of the paper: quantiles of a normal distribution, zero among them, scaled to [-1, 1].
_LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def pack(weight: Tensor) -> Tensor:
    """Round a weight: float [out, in] -> uint8 [out, 34 * in / 64]. ``in`` is a multiple of 64."""
    blocks = weight.detach().float().reshape(-1, BLOCK)
    scales = blocks.abs().amax(1).to(torch.bfloat16)
    levels = torch.tensor(_LEVELS, device=weight.device)
    shares = blocks / torch.where(scales == 0, 1, scales)[:, None]
    codes = torch.bucketize(shares, (levels[1:] + levels[:-1]) / 2, out_int32=True).to(torch.uint8).view(-1, 2)
    packed = torch.cat([codes[:, 0] << 4 | codes[:, 1], scales.view(torch.uint8)])
    return packed.view(packed_shape(weight))


def packed_shape(weight: Tensor) -> tuple[int, int]:
    """Of what ``pack`` makes of it."""
    rows, columns = weight.shape
    return rows, columns // BLOCK * _BYTES


def shape_of(packed: tuple[int, ...]) -> tuple[int, int]:
    """[out, in] of a weight, by the shape of what ``pack`` made of it."""
    rows, columns = packed
    return rows, columns // _BYTES * BLOCK


def unpack(packed: Tensor, dtype: torch.dtype, pairs: Tensor | None = None) -> Tensor:
    """The rounded weight [out, in]: computed in fp32, and rounded to ``dtype`` once.

    Args:
        pairs: what ``value_pairs`` gave, on the device of ``packed``; None makes it.
    """
    shape = shape_of(tuple(packed.shape))
    flat, codes = packed.view(-1), shape[0] * shape[1] // 2
    table = value_pairs().to(packed.device) if pairs is None else pairs
    values = table.index_select(0, flat[:codes].int()).view(torch.float32)
    scales = flat[codes:].view(torch.bfloat16).float()
    return (values.view(-1, BLOCK) * scales[:, None]).to(dtype).view(shape)


def value_pairs() -> Tensor:
    """int64 [256]: the two values in fp32 that a byte stands for, which are looked up at once."""
    levels, codes = torch.tensor(_LEVELS), torch.arange(256)
    return torch.stack([levels[codes >> 4], levels[codes & 15]], dim=1).view(torch.int64).view(-1)


def is_packed(parameter: Tensor) -> bool:
    """Whether it is what ``pack`` made of a weight: no other parameter is of bytes."""
    return parameter.dtype == torch.uint8


def values_in(parameter: Tensor) -> int:
    """How many numbers of a model a parameter stands for: of one in 4 bits more than it has elements."""
    count = parameter.numel()
    return count // _BYTES * BLOCK if is_packed(parameter) else count
