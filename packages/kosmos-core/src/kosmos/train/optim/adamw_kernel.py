"""AdamW as a Triton kernel, for bf16 weights that lose no update: all of a parameter read once and written once.

A launch for each parameter. With 16 extra bits it moves 26 bytes an element, once; passes of PyTorch are a dozen.

Imported only where there is a GPU and Triton (or its interpreter, ``TRITON_INTERPRET=1``, on a CPU).
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kosmos.runtime.devices import current
from kosmos.train.optim.rounding_kernels import load_weight, store_weight

ELEMENTS = 2048
"""Elements of a program: 16 bytes a thread and load of fp32 with 8 warps, twice."""


def adamw(
    weight: Tensor,
    gradient: Tensor,
    means: tuple[Tensor, Tensor],
    low: Tensor | None,
    step: int,
    group: dict[str, Any],
    *,
    scale: float,
    noise: int | None,
) -> None:
    """One step.

    Args:
        weight: bf16 [n], contiguous, as all tensors here; changed in place, as are ``means`` and ``low``.
        gradient: [n].
        means: of the gradient and of its square, fp32 [n].
        low: int8 or int16 [n], bits of the weight below those of bf16 (see ``masters``), or None.
        step: counted from 1.
        group: ``lr``, ``betas``, ``eps`` and ``weight_decay``.
        scale: what gradients are multiplied by as they are read.
        noise: key of stochastic rounding, uint32; None rounds to nearest.
    """
    count = weight.numel()
    if not count:
        return  # a shard may hold no row
    beta1, beta2 = group["betas"]
    rate = group["lr"]
    stochastic = noise is not None
    bits = low is not None or stochastic
    key = noise or 0
    with current(weight.device):
        _adamw_kernel[(triton.cdiv(count, ELEMENTS),)](
            weight.view(torch.int16) if bits else weight, gradient, *means, weight if low is None else low, count,
            key - 2**32 if key >= 2**31 else key,  # always an int32, so that no key compiles anew
            float(scale), float(rate * group["weight_decay"]), float(beta1), float(1 - beta1), float(beta2),
            float(1 - beta2), float(rate / (1 - beta1**step)), sqrt(1 - beta2**step), float(group["eps"]),
            WEIGHT=tl.int16 if bits else tl.bfloat16, LOW=tl.int16 if low is None else _LOW[low.dtype],
            LOW_BITS=0 if low is None else 8 * low.itemsize, STOCHASTIC=stochastic, ELEMENTS=ELEMENTS, num_warps=8,
        )  # fmt: skip


_LOW = {torch.int8: tl.int8, torch.int16: tl.int16}


@triton.jit(do_not_specialize=["key"])  # type: ignore[untyped-decorator]
def _adamw_kernel(  # type: ignore[no-untyped-def]  # Triton compiles annotations too, and knows no others than its own
    weight_ptr, gradient_ptr, mean_ptr, square_ptr, low_ptr, count, key,
    scale, decay, beta1, rest1, beta2, rest2, rate, root, eps,
    WEIGHT: tl.constexpr, LOW: tl.constexpr, LOW_BITS: tl.constexpr, STOCHASTIC: tl.constexpr, ELEMENTS: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = place < count
    weight = load_weight(weight_ptr, low_ptr, place, inside, LOW_BITS, STOCHASTIC)
    gradient = tl.load(gradient_ptr + place, mask=inside, other=0).to(tl.float32) * scale
    mean = tl.load(mean_ptr + place, mask=inside, other=0) * beta1 + gradient * rest1
    square = tl.load(square_ptr + place, mask=inside, other=0) * beta2 + gradient * gradient * rest2
    tl.store(mean_ptr + place, mean, mask=inside)
    tl.store(square_ptr + place, square, mask=inside)
    weight = weight - decay * weight
    weight = weight - rate * mean / (tl.sqrt(square) / root + eps)
    store_weight(weight_ptr, low_ptr, place, inside, weight, key, WEIGHT, LOW, LOW_BITS, STOCHASTIC)
