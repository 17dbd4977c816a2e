"""bf16 weights that lose no update: rounded at random, or with the bits below bf16 kept beside them.

An update smaller than half the distance to the next bf16 number is lost when the sum is rounded to nearest.
Two remedies:

* ``stochastic``: round up with the probability of the part that is cut off, so that the mean is right. The random
  bits are those of ``noise``.
* ``bits8``, ``bits16``: keep 8 or 16 further bits as a signed integer, the distance from the bf16 number. With 16
  the weight is fp32 to the bit; the model sees it rounded to bf16.

Source: bits beside bf16 weights, arXiv 2602.23349 (FlashOptim).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from kosmos.train.optim.noise import random_bits

Master = Literal["none", "stochastic", "bits8", "bits16"]
LOW_DTYPES = {"bits8": torch.int8, "bits16": torch.int16}


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
