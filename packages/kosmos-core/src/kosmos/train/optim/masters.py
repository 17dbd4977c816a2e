"""bf16 weights that lose no update: rounded at random, or with the bits below bf16 kept beside them.

An update smaller than half the distance to the next bf16 number is lost when the sum is rounded to nearest.
Two remedies:

* ``stochastic``: round up with the probability of the part that is cut off, so that the mean is right. The random
  bits are a hash of the step and the element's place: the same on every process and backend, and after a restart.
* ``bits8``, ``bits16``: keep 8 or 16 further bits as a signed integer, the distance from the bf16 number. With 16
  the weight is fp32 to the bit; the model sees it rounded to bf16.

Sources: bits beside bf16 weights, arXiv 2602.23349 (FlashOptim); hash, the finalizer of MurmurHash3.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Master = Literal["none", "stochastic", "bits8", "bits16"]
LOW_DTYPES = {"bits8": torch.int8, "bits16": torch.int16}

WEYL, MIX1, MIX2 = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35
"""Odd factors of the hash: places are spread by the first, then mixed twice."""


def signed(value: int) -> int:
    """The int32 that has the low 32 bits of ``value``."""
    return (value + 2**31) % 2**32 - 2**31


def noise_key(seed: int, parameter: int, step: int, start: int = 0) -> int:
    """uint32 from which the random bits of one parameter in one step come.

    Args:
        start: place of the first element on this process among all of the parameter.
    """
    mixed = 0
    for value in (seed, parameter, step):  # splitmix64
        mixed = (mixed + value + 0x9E3779B97F4A7C15) % 2**64
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) % 2**64
        mixed ^= mixed >> 31
    return (mixed + start * WEYL) % 2**32


def random_bits(key: int, start: int, out: Tensor, spare: Tensor) -> Tensor:
    """Fill ``out`` with 16 random bits for each of the places from ``start`` on.

    Args:
        out: int32 [n], of values 0 to 65,535 afterwards.
        spare: int32 [n], overwritten.
    """
    torch.arange(len(out), out=out)
    out.mul_(signed(WEYL)).add_(signed(key + start * WEYL))
    for shift, factor in ((16, MIX1), (13, MIX2)):
        torch.bitwise_right_shift(out, shift, out=spare)
        spare.bitwise_and_((1 << (32 - shift)) - 1)  # the shift of a signed number repeats its sign
        out.bitwise_xor_(spare).mul_(signed(factor))
    return out.bitwise_right_shift_(16).bitwise_and_(0xFFFF)


def load(weight: Tensor, low: Tensor | None, out: Tensor, spare: Tensor) -> None:
    """The weights in fp32.

    Args:
        weight: [n].
        low: int8 or int16 [n], then ``weight`` is bf16; or None.
        out: fp32 [n].
        spare: int32 [n], overwritten.
    """
    if low is None:
        out.copy_(weight)
        return
    bits = out.view(torch.int32)
    bits.copy_(weight.view(torch.int16)).bitwise_left_shift_(16)
    spare.copy_(low).bitwise_left_shift_(16 - 8 * low.element_size())
    bits.add_(spare)


def store(
    weight: Tensor, low: Tensor | None, value: Tensor, spare: Tensor, other: Tensor, *, noise: int | None, start: int
) -> None:
    """Put the weights back.

    Args:
        weight: [n], and bf16 if there is ``low`` or ``noise``.
        low: int8 or int16 [n], or None.
        value: fp32 [n], overwritten.
        spare, other: int32 [n], overwritten.
        noise: key of stochastic rounding; None rounds to nearest.
        start: place of the first element.
    """
    bits = value.view(torch.int32)
    if low is not None:
        unit = 16 - 8 * low.element_size()
        if unit:
            bits.add_(1 << (unit - 1)).bitwise_right_shift_(unit).bitwise_left_shift_(unit)
        torch.add(bits, 1 << 15, out=spare).bitwise_right_shift_(16)
        weight.view(torch.int16).copy_(spare)
        low.copy_(bits.sub_(spare.bitwise_left_shift_(16)).bitwise_right_shift_(unit))
    elif noise is not None:
        bits.add_(random_bits(noise, start, spare, other)).bitwise_right_shift_(16)
        weight.view(torch.int16).copy_(bits)
    else:
        weight.copy_(value)
