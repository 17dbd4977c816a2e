"""Lion as one Triton kernel for each parameter: read weight, gradient and momentum once, write two of them once.

Imported only where there is a GPU and Triton (or its interpreter, ``TRITON_INTERPRET=1``, on a CPU).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kosmos.runtime.devices import current
from kosmos.train.optim.blocks import CODES, TINY
from kosmos.train.optim.noise import MIX1, MIX2, WEYL, signed
from kosmos.train.optim.operands import Operands, Step

ELEMENTS = 4096
"""Elements of a program: 16 bytes a thread and load with bf16 and 8 warps, twice."""

_WEYL, _MIX1, _MIX2, _TINY = (tl.constexpr(value) for value in (WEYL, MIX1, MIX2, TINY))


def lion(whole: Operands, step: Step) -> None:
    """One step of Lion on all elements, on the GPU that holds them."""
    count, block = whole.weight.numel(), whole.block
    wide = triton.next_power_of_2(block)
    rows = max(1, ELEMENTS // wide)
    width, height = (wide, rows) if whole.scales is not None else (ELEMENTS, 1)
    per_program = block * rows if whole.scales is not None else ELEMENTS
    numbers = (step.rate, step.decay, step.beta1, 1 - step.beta1, step.beta2, 1 - step.beta2)
    with current(whole.weight.device):
        _lion_kernel[(triton.cdiv(count, per_program),)](
            whole.weight.view(torch.int16) if whole.low is not None or step.stochastic else whole.weight,
            whole.gradient, whole.momentum, whole.scales, whole.low, count, *numbers,
            signed(step.noise), signed(step.noise + CODES),
            BLOCK=block if whole.scales is not None else ELEMENTS, WIDTH=width, HEIGHT=height,
            CODED=whole.scales is not None, STOCHASTIC=step.stochastic,
            LOW_BITS=0 if whole.low is None else 8 * whole.low.element_size(), num_warps=8,
        )  # fmt: skip


@triton.jit(do_not_specialize=["key", "codes_key"])  # type: ignore[untyped-decorator]
def _lion_kernel(  # type: ignore[no-untyped-def]  # Triton compiles annotations too, and knows no others than its own
    weight_ptr, gradient_ptr, momentum_ptr, scales_ptr, low_ptr, count,
    rate, decay, beta1, rest1, beta2, rest2, key, codes_key,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr,
    CODED: tl.constexpr, STOCHASTIC: tl.constexpr, LOW_BITS: tl.constexpr,
):  # fmt: skip
    # HEIGHT blocks of BLOCK elements, each padded to WIDTH, a power of two.
    row = tl.program_id(0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)
    column = tl.arange(0, WIDTH)
    place = row[:, None] * BLOCK + column[None, :]
    inside = (column[None, :] < BLOCK) & (place < count)

    stored = tl.load(weight_ptr + place, mask=inside, other=0)
    if LOW_BITS > 0:
        low = tl.load(low_ptr + place, mask=inside, other=0).to(tl.int32)
        weight = ((stored.to(tl.int32) << 16) + (low << (16 - LOW_BITS))).to(tl.float32, bitcast=True)
    elif STOCHASTIC:
        weight = (stored.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        weight = stored.to(tl.float32)
    gradient = tl.load(gradient_ptr + place, mask=inside, other=0).to(tl.float32)
    momentum = tl.load(momentum_ptr + place, mask=inside, other=0).to(tl.float32)
    if CODED:
        momentum = momentum / (254 - tl.abs(momentum))
        momentum = momentum * tl.load(scales_ptr + row, mask=row * BLOCK < count, other=0)[:, None]

    mean = momentum * beta1 + gradient * rest1
    sign = tl.where(mean > 0, 1.0, tl.where(mean < 0, -1.0, 0.0))
    weight = weight - rate * (sign + decay * weight)
    momentum = momentum * beta2 + gradient * rest2

    if LOW_BITS > 0:
        bits = weight.to(tl.int32, bitcast=True)
        if LOW_BITS < 16:
            bits = ((bits + (1 << (15 - LOW_BITS))) >> (16 - LOW_BITS)) << (16 - LOW_BITS)
        high = (bits + (1 << 15)) >> 16
        tl.store(weight_ptr + place, high.to(tl.int16), mask=inside)
        rest = (bits - (high << 16)) >> (16 - LOW_BITS)
        tl.store(low_ptr + place, rest.to(low_ptr.dtype.element_ty), mask=inside)
    elif STOCHASTIC:
        bits = weight.to(tl.int32, bitcast=True) + _random_bits(place, key)
        tl.store(weight_ptr + place, (bits >> 16).to(tl.int16), mask=inside)
    else:
        tl.store(weight_ptr + place, weight.to(weight_ptr.dtype.element_ty), mask=inside)

    if CODED:
        scale = tl.max(tl.abs(momentum), axis=1)
        tl.store(scales_ptr + row, scale, mask=row * BLOCK < count)
        share = momentum * tl.where(scale > _TINY, 1 / scale, 0.0)[:, None]
        code = share / (1 + tl.abs(share)) * 254 + _random_bits(place, codes_key).to(tl.float32) * 0.0000152587890625
        tl.store(momentum_ptr + place, tl.floor(code).to(tl.int8), mask=inside)
    else:
        tl.store(momentum_ptr + place, momentum.to(momentum_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _random_bits(place, key):  # type: ignore[no-untyped-def]
    # As noise.random_bits.
    x = place.to(tl.uint32) * _WEYL + key.to(tl.uint32)
    x = (x ^ (x >> 16)) * _MIX1
    x = (x ^ (x >> 13)) * _MIX2
    return (x >> 16).to(tl.int32)
