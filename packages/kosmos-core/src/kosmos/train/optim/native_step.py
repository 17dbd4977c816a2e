"""What steps of optimizers in C++ have in common: how they are compiled, and what is looked at before they run."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from kosmos.runtime.native import load_source

WHERE = "train.optimizer.compile"


def open_source(source: Path, row: type[ctypes.Structure]) -> ctypes.CDLL:
    """Compile an optimizer's step, whose ``Parameter`` is laid out as ``row``.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    found = load_source(source, WHERE)
    found.size_of_parameter.restype = ctypes.c_int64
    assert found.size_of_parameter() == ctypes.sizeof(row)
    return found


def knows_low(low: Tensor | None) -> bool:
    """Whether the sources know the type of the bits below bf16 weights, or there are none."""
    return low is None or low.dtype in (torch.int8, torch.int16)


def check_tensors(weight: Tensor, tensors: Sequence[Tensor], block: int = 1) -> None:
    """The sources read and write where they are told: a parameter's tensors each have a number for ``block`` elements.

    Raises:
        RuntimeError: one has more or fewer, or is not on the CPU, or not contiguous.
    """
    sizes = [t.numel() * block for t in tensors]
    if set(sizes) != {weight.numel()}:
        raise RuntimeError(f"a parameter of {weight.numel()} elements has a gradient or state of {sizes}")
    if any(t.device.type != "cpu" or not t.data_ptr() or not t.is_contiguous() for t in tensors):
        raise RuntimeError("a parameter on the CPU has a gradient or state elsewhere, or not contiguous")
