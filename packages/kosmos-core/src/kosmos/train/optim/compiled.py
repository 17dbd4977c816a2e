"""Lion on the CPU by ``lion.cpp``: every byte is read and written once, for all parameters in one call.

The first step waits for the C++ compiler, about a second. Steps are those of ``passes`` but for rounding.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from kosmos.errors import ConfigError
from kosmos.train.optim import blocks
from kosmos.train.optim.operands import Operands, Step

SOURCE = Path(__file__).with_name("lion.cpp")
WHERE = "train.optimizer.compile"
INSTEAD = f"leave {WHERE} out"


class _Numbers(ctypes.Structure):
    """As in the source, and so is ``_Parameter``."""

    _fields_ = tuple((name, ctypes.c_float) for name in ("rate", "decay", "beta1", "rest1", "beta2", "rest2"))


class _Parameter(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weight", "gradient", "momentum", "scales", "low")),
        *((name, ctypes.c_int64) for name in ("elements", "block")),
        *((name, ctypes.c_uint32) for name in ("weight_key", "code_key")),
        *((name, ctypes.c_int32) for name in ("is_bf16", "low_bytes", "is_stochastic")),
    )


def check_compiler() -> list[str]:
    """The C++ compiler's command.

    Raises:
        ConfigError: there is none.
    """
    commands = [shlex.split(os.environ.get("CXX", "")) or ["g++"], ["g++"], ["clang++"]]
    for command in commands:
        if shutil.which(command[0]):
            return command
    names = ", ".join(dict.fromkeys(command[0] for command in commands))
    raise ConfigError(
        f"{WHERE}: true needs a C++ compiler and none of {names} is on the path; install one or {INSTEAD}"
    )


def can_take(whole: Operands) -> bool:
    """Whether the source knows the types: fp32 or bf16, one for all but codes and low bits."""
    dtype = whole.weight.dtype
    momentum = dtype if whole.scales is None else torch.int8
    return (
        dtype in (torch.float32, torch.bfloat16)
        and whole.weight.device.type == "cpu"
        and whole.gradient.dtype is dtype
        and whole.momentum.dtype is momentum
    )


def lion(rows: Sequence[Operands], noises: Sequence[int], step: Step) -> None:
    """One step of Lion on all elements of many parameters.

    Args:
        rows: such as ``can_take`` knows.
        noises: of each the key of its random bits, in place of that of ``step``.
        step: for all.

    Raises:
        ConfigError: the source cannot be compiled.
    """
    table = (_Parameter * len(rows))(
        *(_row(whole, noise, step.stochastic) for whole, noise in zip(rows, noises, strict=True))
    )
    numbers = _Numbers(step.rate, step.decay, step.beta1, 1 - step.beta1, step.beta2, 1 - step.beta2)
    _library().lion(table, ctypes.c_int64(len(rows)), ctypes.byref(numbers), torch.get_num_threads())


def _row(whole: Operands, noise: int, stochastic: bool) -> _Parameter:
    weight, low = whole.weight, whole.low
    tensors = (weight, whole.gradient, whole.momentum, whole.scales, low)
    return _Parameter(
        *(None if t is None else t.data_ptr() for t in tensors),
        weight.numel(),
        whole.block,
        noise,
        noise + blocks.CODES,
        weight.dtype is torch.bfloat16,
        0 if low is None else low.element_size(),
        stochastic,
    )


@functools.cache
def _library() -> ctypes.CDLL:
    # A fresh folder: nobody else can have put a library there, and one that is loaded needs its file no more.
    with tempfile.TemporaryDirectory(prefix="kosmos-lion-") as folder:
        made = Path(folder, "lion.so")
        command = [*check_compiler(), *_flags(), str(SOURCE), "-o", str(made)]
        said = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if said.returncode or not made.exists():
            lines = said.stderr.split("\n")
            reason = next((line for line in lines if "error" in line), lines[0]) or f"exit status {said.returncode}"
            raise ConfigError(f"{WHERE}: {shlex.join(command[:-3])} failed: {reason.strip()}; {INSTEAD}")
        try:
            return ctypes.CDLL(str(made))
        except OSError as error:
            raise ConfigError(f"{WHERE}: {error}; set TMPDIR to a place of programs, or {INSTEAD}") from error


def _flags() -> Iterator[str]:
    yield from ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
    yield "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
    # Apple's compiler comes without OpenMP: there the step runs on one thread.
    yield "-fopenmp-simd" if sys.platform == "darwin" else "-fopenmp"
