"""Lion as one compiled pass on the CPU: every byte is read and written once and nothing is computed from memory.

The first step waits for the compiler. Steps are those of ``passes`` but for rounding.
"""

from __future__ import annotations

import functools
import os
import shutil
import types
from collections.abc import Callable

import torch
from torch import Tensor

from kosmos.errors import ConfigError
from kosmos.train.optim import blocks, noise
from kosmos.train.optim.operands import Operands, Step

LEAST = 4096
"""Fewest elements that are worth the call: smaller parameters take the passes, and plain ones of up to ``Batch.SMALL``
elements are taken together, which is as fast."""


def check_compiler(where: str) -> None:
    """Refuse to go on without a C++ compiler.

    Raises:
        ConfigError: there is none.
    """
    names = (os.environ.get("CXX", "g++"), "g++", "clang++")
    if not any(shutil.which(name) for name in names):
        raise ConfigError(
            f"{where}: true needs a C++ compiler and none of {', '.join(dict.fromkeys(names))} is on the path; "
            f"install one or leave {where} out"
        )


def lion(whole: Operands, step: Step) -> None:
    """One step of Lion on all elements."""
    numbers = torch.tensor([step.rate, step.decay, step.beta1, 1 - step.beta1, step.beta2, 1 - step.beta2])
    keys = torch.tensor([noise.signed(step.noise), noise.signed(step.noise + blocks.CODES)], dtype=torch.int32)
    rows = [None if t is None else _in_blocks(t, whole) for t in (*whole.elements(), whole.low)]
    _compiled(whole.block, step.stochastic, torch.get_num_threads())(*rows, whole.scales, numbers, keys)


def _in_blocks(tensor: Tensor, whole: Operands) -> Tensor:
    """[n / B, B] where momentum is in 8 bits. Only a width that the compiler knows is vectorized: 17 times faster."""
    if whole.scales is None:
        return tensor
    rows = tensor.view(-1, whole.block)
    torch._dynamo.mark_static(rows, 1)
    return rows


@functools.cache
def _compiled(block: int, stochastic: bool, threads: int) -> Callable[..., None]:
    # A function of its own for every width: PyTorch allows one function eight versions.
    code = _pass.__code__.replace(co_name=f"_pass_{block}_{stochastic}")
    pass_ = types.FunctionType(code, globals(), argdefs=(stochastic,))
    # The number of threads is compiled in; stated, it also keeps the cache of another number from being taken.
    return torch.compile(pass_, dynamic=True, fullgraph=True, options={"cpp.threads": threads})


def _pass(
    weight: Tensor,
    gradient: Tensor,
    momentum: Tensor,
    low: Tensor | None,
    scales: Tensor | None,
    numbers: Tensor,
    keys: Tensor,
    stochastic: bool = False,
) -> None:
    """All tensors are [n], or [n / B, B] beside ``scales`` [n / B]."""
    rate, decay, beta1, rest1, beta2, rest2 = numbers.unbind()
    value, slope, mean = _joined(weight, low), gradient.float(), momentum.float()
    if scales is not None:
        mean = mean / (254 - mean.abs()) * scales[:, None]
    value = value - rate * (torch.sign(mean * beta1 + slope * rest1) + decay * value)
    mean = mean * beta2 + slope * rest2
    _split(value, weight, low, keys[0] if stochastic else None)
    if scales is None:
        momentum.copy_(mean)
        return
    new = mean.abs().amax(1)
    scales.copy_(new)
    share = mean * torch.where(new > blocks.TINY, 1 / new, 0.0)[:, None]
    code = share / (1 + share.abs()) * 254 + _random_bits(share, keys[1]) * 2**-16
    momentum.copy_(code.floor().to(torch.int8))


def _joined(weight: Tensor, low: Tensor | None) -> Tensor:
    if low is None:
        return weight.float()
    unit = 16 - 8 * low.element_size()
    bits = (weight.view(torch.int16).to(torch.int32) << 16) + (low.to(torch.int32) << unit)
    return bits.view(torch.float32)


def _split(value: Tensor, weight: Tensor, low: Tensor | None, key: Tensor | None) -> None:
    """As ``masters.store``."""
    if low is not None:
        unit, bits = 16 - 8 * low.element_size(), value.view(torch.int32)
        if unit:
            bits = ((bits + (1 << (unit - 1))) >> unit) << unit
        high = (bits + (1 << 15)) >> 16
        weight.view(torch.int16).copy_(high.to(torch.int16))
        low.copy_(((bits - (high << 16)) >> unit).to(low.dtype))
    elif key is not None:
        bits = value.view(torch.int32) + _random_bits(weight, key)
        weight.view(torch.int16).copy_((bits >> 16).to(torch.int16))
    else:
        weight.copy_(value)


def _random_bits(like: Tensor, key: Tensor) -> Tensor:
    """As ``noise.random_bits``."""
    place = torch.arange(like.shape[-1], dtype=torch.int32)
    if like.ndim == 2:
        place = torch.arange(like.shape[0], dtype=torch.int32)[:, None] * like.shape[1] + place
    x = place * noise.signed(noise.WEYL) + key
    for shift, factor in ((16, noise.MIX1), (13, noise.MIX2)):
        x = (x ^ ((x >> shift) & ((1 << (32 - shift)) - 1))) * noise.signed(factor)
    return (x >> 16) & 0xFFFF
