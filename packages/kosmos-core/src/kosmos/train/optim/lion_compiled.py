"""Lion on the CPU by ``lion.cpp``: every byte is read and written once, for all parameters in one call.

It is compiled when it is first asked for, in a second or two. Steps are those of ``passes`` but for rounding.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import torch

from kosmos.train.optim import blocks
from kosmos.train.optim.native_step import check_tensors, knows_low, open_source
from kosmos.train.optim.operands import Operands, Step

SOURCE = Path(__file__).with_name("lion.cpp")


class _Numbers(ctypes.Structure):
    """As in the source, and so is ``_Parameter``."""

    _fields_ = tuple((name, ctypes.c_float) for name in ("rate", "decay", "beta1", "rest1", "beta2", "rest2", "scale"))


class _Parameter(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weight", "gradient", "momentum", "scales", "low")),
        *((name, ctypes.c_int64) for name in ("elements", "block")),
        *((name, ctypes.c_uint32) for name in ("weight_key", "code_key")),
        *((name, ctypes.c_int32) for name in ("is_bf16", "low_bytes", "is_stochastic")),
    )


def can_take(whole: Operands) -> bool:
    """Whether the source knows the types: fp32 or bf16, one for all but codes, scales and low bits."""
    dtype, momentum = whole.weight.dtype, whole.momentum.dtype
    return (
        whole.weight.device.type == "cpu"
        and dtype in (torch.float32, torch.bfloat16)
        and whole.gradient.dtype is dtype
        and momentum is (dtype if whole.scales is None else torch.int8)
        and (whole.scales is None or whole.scales.dtype is torch.float32)
        and knows_low(whole.low)
    )


def lion(rows: Sequence[tuple[Operands, int]], step: Step) -> None:
    """One step of Lion on all elements of many parameters.

    Args:
        rows: such as ``can_take`` knows, each with the key of its random bits, in place of that of ``step``.
        step: for all.

    Raises:
        ConfigError: the source cannot be compiled.
        RuntimeError: sizes or devices of a parameter's tensors disagree.
    """
    table = (_Parameter * len(rows))(*(_row(whole, noise, step.stochastic) for whole, noise in rows))
    numbers = _Numbers(step.rate, step.decay, step.beta1, 1 - step.beta1, step.beta2, 1 - step.beta2, step.scale)
    binary().lion(table, ctypes.c_int64(len(rows)), ctypes.byref(numbers), torch.get_num_threads())


def _row(whole: Operands, noise: int, stochastic: bool) -> _Parameter:
    _check(whole)
    weight, scales, low = whole.weight, whole.scales, whole.low
    return _Parameter(
        weight=weight.data_ptr(),
        gradient=whole.gradient.data_ptr(),
        momentum=whole.momentum.data_ptr(),
        scales=None if scales is None else scales.data_ptr(),
        low=None if low is None else low.data_ptr(),
        elements=weight.numel(),
        block=whole.block,
        weight_key=noise,
        code_key=noise + blocks.CODES,
        is_bf16=weight.dtype is torch.bfloat16,
        low_bytes=0 if low is None else low.element_size(),
        is_stochastic=stochastic,
    )


def _check(whole: Operands) -> None:
    check_tensors(whole.weight, [t for t in (*whole.elements(), whole.low) if t is not None])
    if whole.scales is not None:
        check_tensors(whole.weight, [whole.scales], whole.block)


@functools.cache
def binary() -> ctypes.CDLL:
    """The compiled source.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    return open_source(SOURCE, _Parameter)
