"""Random bits for stochastic rounding: a hash of the parameter, the step and the element's place.

They are the same on every process, however rows are shared out, by every backend, and after a restart. Where columns
are shared out (``parallel.tensor``) a rank counts places among its own elements: its bits depend on how many share.

Source: the finalizer of MurmurHash3, without its last shift; splitmix64 for the key.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

WEYL, MIX1, MIX2 = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35
"""Odd factors of the hash: places are spread by the first, then mixed twice."""


def signed(value: int) -> int:
    """The int32 that has the low 32 bits of ``value``."""
    return (value + 2**31) % 2**32 - 2**31


Keys = npt.NDArray[np.uint64]


def noise_keys(seed: int, parameters: Keys, steps: Keys, starts: Keys) -> Keys:
    """``noise_key`` of many parameters at once: all are uint64 [n], and so is the result, of values below 2**32."""
    mixed = np.zeros_like(parameters)
    for value in (np.uint64(seed % 2**64), parameters, steps):
        mixed = mixed + value + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed + starts * np.uint64(WEYL)) % np.uint64(2**32)


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
