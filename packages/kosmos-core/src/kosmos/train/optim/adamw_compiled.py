"""AdamW of bf16 weights on the CPU by ``adamw.cpp``: every byte is read and written once, for all of them in one call.

As ``lion_compiled`` is for Lion. Steps are those of PyTorch's fused AdamW but for rounding.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kosmos.train.optim.native_step import check_tensors, knows_low, open_source

SOURCE = Path(__file__).with_name("adamw.cpp")


@dataclass(frozen=True)
class Row:
    """One parameter: its tensors are of one size and contiguous, and changed in place but for the gradient."""

    weight: Tensor
    """bf16 [n]."""
    gradient: Tensor
    """bf16 [n]."""
    mean: Tensor
    """Of the gradient, fp32 [n]."""
    square: Tensor
    """Mean of its square, fp32 [n]."""
    low: Tensor | None
    """int8 or int16 [n]: bits of the weight below those of bf16; see ``masters``."""
    step: int
    """The number of this step, from 1."""
    noise: int | None
    """Key of stochastic rounding, uint32; None rounds to nearest."""

    def tensors(self) -> list[Tensor]:
        return [t for t in (self.weight, self.gradient, self.mean, self.square, self.low) if t is not None]


class _Numbers(ctypes.Structure):
    """As in the source, and so is ``_Parameter``."""

    _fields_ = tuple((n, ctypes.c_float) for n in ("decay", "beta1", "rest1", "beta2", "rest2", "eps", "scale"))


class _Parameter(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weight", "gradient", "mean", "square", "low")),
        ("elements", ctypes.c_int64),
        *((name, ctypes.c_float) for name in ("rate", "unbias")),
        ("weight_key", ctypes.c_uint32),
        *((name, ctypes.c_int32) for name in ("low_bytes", "is_stochastic")),
    )


def can_take(weight: Tensor, gradient: Tensor) -> bool:
    """Whether the source knows the types of a parameter's weights and gradient."""
    return weight.device.type == "cpu" and weight.dtype is gradient.dtype is torch.bfloat16


def adamw(rows: Sequence[Row], group: dict[str, Any], scale: float) -> None:
    """One step on all elements of many parameters, such as ``can_take`` knows.

    Args:
        group: ``lr``, ``betas``, ``eps`` and ``weight_decay``.
        scale: what gradients are multiplied by as they are read.

    Raises:
        ConfigError: the source cannot be compiled.
        RuntimeError: sizes, types or devices of a parameter's tensors disagree.
    """
    beta1, beta2 = group["betas"]
    rate = group["lr"]
    table = (_Parameter * len(rows))(*(_parameter(row, rate, beta1, beta2) for row in rows))
    decay = rate * group["weight_decay"]
    numbers = _Numbers(decay, beta1, 1 - beta1, beta2, 1 - beta2, group["eps"], scale)
    binary().adamw(table, ctypes.c_int64(len(rows)), ctypes.byref(numbers), torch.get_num_threads())


def _parameter(row: Row, rate: float, beta1: float, beta2: float) -> _Parameter:
    check_tensors(row.weight, row.tensors())
    if not (row.mean.dtype is row.square.dtype is torch.float32 and knows_low(row.low)):
        raise RuntimeError(f"a parameter has a state of other types: {[t.dtype for t in row.tensors()]}")
    return _Parameter(
        weight=row.weight.data_ptr(),
        gradient=row.gradient.data_ptr(),
        mean=row.mean.data_ptr(),
        square=row.square.data_ptr(),
        low=None if row.low is None else row.low.data_ptr(),
        elements=row.weight.numel(),
        rate=rate / (1 - beta1**row.step),
        unbias=1 / sqrt(1 - beta2**row.step),
        weight_key=row.noise or 0,
        low_bytes=0 if row.low is None else row.low.element_size(),
        is_stochastic=row.noise is not None,
    )


@functools.cache
def binary() -> ctypes.CDLL:
    """The compiled source.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    return open_source(SOURCE, _Parameter)
