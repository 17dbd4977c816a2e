"""Lion on the CPU by ``lion.cpp``: every byte is read and written once, for all parameters in one call.

It is compiled when it is first asked for, in a second or two. Steps are those of ``passes`` but for rounding.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import re
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
INSTEAD = f"set {WHERE}=false"
TELLING = "error|cannot find|undefined"
"""What compilers and linkers say of what is wrong."""
WORTH = 4_000_000
"""Parameters from which compiling pays within some hundred steps: it takes a second, and saves half a millisecond of a
step for each million (machine C of the results)."""


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


def can_take(whole: Operands) -> bool:
    """Whether the source knows the types: fp32 or bf16, one for all but codes, scales and low bits."""
    dtype, momentum = whole.weight.dtype, whole.momentum.dtype
    return (
        whole.weight.device.type == "cpu"
        and dtype in (torch.float32, torch.bfloat16)
        and whole.gradient.dtype is dtype
        and momentum is (dtype if whole.scales is None else torch.int8)
        and (whole.scales is None or whole.scales.dtype is torch.float32)
        and (whole.low is None or whole.low.dtype in (torch.int8, torch.int16))
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
    numbers = _Numbers(step.rate, step.decay, step.beta1, 1 - step.beta1, step.beta2, 1 - step.beta2)
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
    """The source reads and writes where it is told."""
    sizes = [t.numel() for t in (*whole.elements(), whole.low) if t is not None]
    if whole.scales is not None:
        sizes.append(whole.scales.numel() * whole.block)
    tensors = [t for t in (*whole.elements(), whole.scales, whole.low) if t is not None]
    if set(sizes) != {whole.weight.numel()}:
        raise RuntimeError(f"a parameter of {whole.weight.numel()} elements has a gradient or state of {sizes}")
    if any(t.device.type != "cpu" or not t.data_ptr() for t in tensors):
        raise RuntimeError("a parameter on the CPU has a gradient or state elsewhere")


@functools.cache
def binary() -> ctypes.CDLL:
    """The compiled source.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    try:
        # A fresh folder: nobody else can have put a library there, and one that is loaded needs its file no more.
        with tempfile.TemporaryDirectory(prefix="kosmos-lion-") as folder:
            made = Path(folder, "lion.so")
            _compile(made)
            found = ctypes.CDLL(str(made))
    except OSError as error:
        advice = "set TMPDIR to a folder of which programs may run" if _is_forbidden(error) else "see there"
        raise ConfigError(f"{WHERE}: {error}; {advice}, or {INSTEAD}") from error
    found.size_of_parameter.restype = ctypes.c_int64
    assert found.size_of_parameter() == ctypes.sizeof(_Parameter)
    return found


def _compile(made: Path) -> None:
    command = [*compiler(), *_flags(), str(SOURCE), "-o", str(made)]
    # In a session of its own: Ctrl-C is for the run, which then stops in good order.
    said = subprocess.run(
        command, capture_output=True, text=True, errors="replace", start_new_session=True, stdin=subprocess.DEVNULL
    )
    if said.returncode or not made.exists():
        lines = [line.strip() for line in said.stderr.split("\n") if re.search(TELLING, line, re.IGNORECASE)]
        reason = "; ".join(lines[:3]) or f"exit status {said.returncode}"
        raise ConfigError(f"{WHERE}: {shlex.join(command[:-3])} failed: {reason}; {INSTEAD}")


def _is_forbidden(error: OSError) -> bool:
    return error.errno in (errno.EACCES, errno.EPERM) or "failed to map segment" in str(error)


def compiler() -> list[str]:
    """The C++ compiler's command: ``$CXX``, or the first of some.

    Raises:
        ConfigError: there is none.
    """
    try:
        asked = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise ConfigError(f"{WHERE}: CXX: {error}; mend it, or {INSTEAD}") from error
    commands = [asked] if asked else [["g++"], ["clang++"]]
    found = next((command for command in commands if shutil.which(command[0])), None)
    if found is None:
        names = ", ".join(command[0] for command in commands)
        whence = "CXX names" if asked else "none is on the path of"
        raise ConfigError(f"{WHERE}: it needs a C++ compiler: {whence} {names}; install one, or {INSTEAD}")
    return found


def _flags() -> Iterator[str]:
    yield from ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
    yield "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
    # Apple's compiler comes without OpenMP: there the step runs on one thread.
    yield "-fopenmp-simd" if sys.platform == "darwin" else "-fopenmp"
