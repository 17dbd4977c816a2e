"""Lion as one Triton kernel for all parameters of a kind: weight, gradient, momentum read once, two written once.

A launch takes the CPU as long as the GPU takes for ten million weights, so that one for each parameter would leave the
GPU waiting. The kernel finds its tensors in a table of their addresses instead.

Imported only where there is a GPU and Triton (or its interpreter, ``TRITON_INTERPRET=1``, on a CPU).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from kosmos.data.transfer import to_device
from kosmos.runtime.devices import current
from kosmos.train.optim.blocks import CODES, TINY
from kosmos.train.optim.noise import Keys
from kosmos.train.optim.operands import Operands, Step
from kosmos.train.optim.rounding_kernels import load_weight, random_bits, store_weight

ELEMENTS = 4096
"""Elements of a program: 16 bytes a thread and load with bf16 and 8 warps, twice."""
ALIGNED = 16
"""Bytes and elements: what begins and ends at multiples of it is read several elements at a time."""

_TINY = tl.constexpr(TINY)
_TYPES = {
    torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.int8: tl.int8,
    torch.int16: tl.int16,
}  # fmt: skip
_COLUMNS = tl.constexpr(9)
_GRADIENT, _COUNT, _FIRST, _KEY, _CODES_KEY = 1, 5, 6, 7, 8
"""Columns of the table."""


class Kind(NamedTuple):
    """What parameters of one launch have in common."""

    weight: torch.dtype
    gradient: torch.dtype
    momentum: torch.dtype
    low: torch.dtype | None
    block: int | None
    """Elements of a block of 8-bit momentum."""
    aligned: bool


class Table:
    """Parameters of one kind on one GPU, none of them empty; a row for each, of which addresses of gradients and
    keys may change every step."""

    def __init__(self, kind: Kind, rows: Sequence[Operands]) -> None:
        self.kind = kind
        self._block = kind.block or ELEMENTS
        self._wide = triton.next_power_of_2(self._block)
        self._height = max(1, ELEMENTS // self._wide)
        self._device = rows[0].weight.device
        counts = np.array([whole.weight.numel() for whole in rows])
        programs = -(-counts // (self._block * self._height))
        self._programs = int(programs.sum())
        self._table = np.zeros((len(rows), _COLUMNS.value), dtype=np.int64)
        for column, name in enumerate(("weight", "gradient", "momentum", "scales", "low")):
            self._table[:, column] = [_pointer(getattr(whole, name)) for whole in rows]
        self._table[:, _COUNT] = counts
        self._table[:, _FIRST] = np.cumsum(programs) - programs
        owners = np.repeat(np.arange(len(rows), dtype=np.int32), programs)
        self._owners = to_device(torch.from_numpy(owners), self._device)
        self._on_device: Tensor | None = None
        """The table as it was last, on the GPU."""

    def lion(self, gradients: Sequence[int], keys: Keys | None, step: Step) -> None:
        """One step of Lion.

        Args:
            gradients: addresses.
            keys: of the random bits (see ``noise``), for each row, below 2**32; that of ``step`` is not looked at. None
                where nothing is rounded at random.
        """
        kind, table = self.kind, self._current(gradients, keys)
        stochastic = step.stochastic and kind.weight is torch.bfloat16
        bits = kind.low is not None or stochastic
        with current(self._device):
            _lion_kernel[(self._programs,)](
                table, self._owners,
                step.scale, step.rate, step.decay, step.beta1, 1 - step.beta1, step.beta2, 1 - step.beta2,
                WEIGHT=tl.int16 if bits else _TYPES[kind.weight], GRADIENT=_TYPES[kind.gradient],
                MOMENTUM=_TYPES[kind.momentum], LOW=_TYPES[kind.low or torch.int8],
                BLOCK=self._block, WIDTH=self._wide, HEIGHT=self._height,
                CODED=kind.block is not None, STOCHASTIC=stochastic,
                LOW_BITS=0 if kind.low is None else 8 * kind.low.itemsize, ALIGNED=ALIGNED if kind.aligned else 1,
                num_warps=8,
            )  # fmt: skip

    def _current(self, gradients: Sequence[int], keys: Keys | None) -> Tensor:
        """The table of this step on the GPU, copied there if it is another than the last."""
        table = self._table
        if self._on_device is None or keys is not None or table[:, _GRADIENT].tolist() != gradients:
            table[:, _GRADIENT] = gradients
            if keys is not None:
                table[:, _KEY], table[:, _CODES_KEY] = keys, (keys + np.uint64(CODES)) % np.uint64(2**32)
            self._on_device = to_device(torch.from_numpy(table), self._device)
        return self._on_device


def kind_of(whole: Operands) -> Kind:
    """What decides which table a parameter is in."""
    tensors = whole.weight, whole.gradient, whole.momentum, whole.scales, whole.low
    aligned = not any(_pointer(t) % ALIGNED for t in tensors) and whole.weight.numel() % ALIGNED == 0
    low, block = None if whole.low is None else whole.low.dtype, None if whole.scales is None else whole.block
    return Kind(whole.weight.dtype, whole.gradient.dtype, whole.momentum.dtype, low, block, aligned)


def _pointer(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


@triton.jit  # type: ignore[untyped-decorator]
def _lion_kernel(  # type: ignore[no-untyped-def]  # Triton compiles annotations too, and knows no others than its own
    table_ptr, owner_ptr, scale, rate, decay, beta1, rest1, beta2, rest2,
    WEIGHT: tl.constexpr, GRADIENT: tl.constexpr, MOMENTUM: tl.constexpr, LOW: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr,
    CODED: tl.constexpr, STOCHASTIC: tl.constexpr, LOW_BITS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    # A row of the table: addresses of weight, gradient, momentum, scales and low bits, elements, first program, keys.
    program = tl.program_id(0)
    columns = table_ptr + tl.load(owner_ptr + program).to(tl.int64) * _COLUMNS
    weight_ptr = tl.multiple_of(tl.load(columns).to(tl.pointer_type(WEIGHT)), ALIGNED)
    gradient_ptr = tl.multiple_of(tl.load(columns + 1).to(tl.pointer_type(GRADIENT)), ALIGNED)
    momentum_ptr = tl.multiple_of(tl.load(columns + 2).to(tl.pointer_type(MOMENTUM)), ALIGNED)
    count = tl.multiple_of(tl.load(columns + 5), ALIGNED)

    # HEIGHT blocks of BLOCK elements, each padded to WIDTH, a power of two.
    row = (program - tl.load(columns + 6)) * HEIGHT + tl.arange(0, HEIGHT)
    column = tl.arange(0, WIDTH)
    place = row[:, None] * BLOCK + column[None, :]
    inside = (column[None, :] < BLOCK) & (place < count)

    low_ptr = tl.multiple_of(tl.load(columns + 4).to(tl.pointer_type(LOW)), ALIGNED)
    weight = load_weight(weight_ptr, low_ptr, place, inside, LOW_BITS, STOCHASTIC)
    gradient = tl.load(gradient_ptr + place, mask=inside, other=0).to(tl.float32) * scale
    momentum = tl.load(momentum_ptr + place, mask=inside, other=0).to(tl.float32)
    if CODED:
        scales_ptr = tl.load(columns + 3).to(tl.pointer_type(tl.float32))
        momentum = momentum / (254 - tl.abs(momentum))
        momentum = momentum * tl.load(scales_ptr + row, mask=row * BLOCK < count, other=0)[:, None]

    mean = momentum * beta1 + gradient * rest1
    sign = tl.where(mean > 0, 1.0, tl.where(mean < 0, -1.0, 0.0))
    weight = weight - rate * (sign + decay * weight)
    momentum = momentum * beta2 + gradient * rest2

    key = tl.load(columns + 7)
    store_weight(weight_ptr, low_ptr, place, inside, weight, key, WEIGHT, LOW, LOW_BITS, STOCHASTIC)

    if CODED:
        largest = tl.max(tl.abs(momentum), axis=1)
        tl.store(scales_ptr + row, largest, mask=row * BLOCK < count)
        share = momentum * tl.where(largest > _TINY, 1 / largest, 0.0)[:, None]
        code = (
            share / (1 + tl.abs(share)) * 254
            + random_bits(place, tl.load(columns + 8)).to(tl.float32) * 0.0000152587890625
        )
        tl.store(momentum_ptr + place, tl.floor(code).to(tl.int8), mask=inside)
    else:
        tl.store(momentum_ptr + place, momentum.to(MOMENTUM), mask=inside)
