"""Where to compute and in which type."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from shutil import which
from typing import Literal, TypeVar, get_args

import torch
from torch import nn

from kosmos.errors import ConfigError

T = TypeVar("T")
Device = Literal["auto", "cpu", "cuda"]
NO_GPU = "cuda is wanted and torch finds none; use cpu or auto"


def pick_device(wanted: Device, local_rank: int = 0) -> torch.device:
    """The device of this process.

    Raises:
        ConfigError: ``cuda`` is wanted and there is none, or none for this process, or something else is wanted.
    """
    if wanted not in get_args(Device):  # from Python; a run file is checked
        raise ConfigError(
            f"device: expected 'auto', 'cpu' or 'cuda', got {wanted!r}; CUDA_VISIBLE_DEVICES chooses a GPU"
        )
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"train.device: {NO_GPU}")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if local_rank >= (count := torch.cuda.device_count()):
        raise ConfigError(
            f"train.device: process {local_rank + 1} of this machine has no GPU of its own, torch finds {count}; start "
            f"as many processes as GPUs, or set train.device=cpu. Where each process is shown one GPU alone (as by "
            "srun --gpus-per-task=1), set LOCAL_RANK=0"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def device_of(given: torch.device | str | None, model: nn.Module) -> torch.device:
    """The device that a caller in Python wants; of None and ``auto`` the one where the model is.

    Raises:
        ConfigError: it is none of PyTorch's, or a GPU where there is none.
    """
    its_own = next(model.parameters()).device
    if given is None or given in ("auto", its_own):
        return its_own
    try:
        device = torch.device(given)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(
            f"device: expected 'auto', 'cpu', 'cuda' or another of PyTorch's, got {given!r:.60}"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device: {NO_GPU}")
    return device


def pick_precision(
    wanted: Literal["auto", "fp32", "bf16"], device: torch.device, weights: Literal["fp32", "bf16"] = "fp32"
) -> torch.dtype:
    """Type of matrix products. ``auto``: bf16 where the hardware multiplies it, or ``weights`` are in it, else fp32.

    A CPU without bf16 units is not merely no faster: 1,024-wide products ran at 0.9 GFLOP/s in bf16 against
    70 in fp32 on two AVX2 cores.

    Raises:
        ConfigError: ``fp32`` is wanted of bf16 weights.
    """
    if weights == "bf16":
        if wanted == "fp32":
            raise ConfigError(
                "train.precision: fp32 products are wanted, but train.weights bf16 are multiplied in bf16; "
                "leave train.precision out, or set train.weights=fp32"
            )
        return torch.bfloat16
    if wanted != "auto":
        return torch.float32 if wanted == "fp32" else torch.bfloat16
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if cpu_multiplies_bf16() else torch.float32


def cpu_multiplies_bf16() -> bool:
    features = [getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")]
    return any(feature() for feature in features if feature is not None)


def check_dtype(dtype: object) -> None:
    """Raises ConfigError where something else is given, such as the name of one."""
    if not isinstance(dtype, torch.dtype):
        raise ConfigError(f"dtype: expected one of PyTorch's, such as torch.bfloat16, got {dtype!r}")


def current(device: torch.device) -> AbstractContextManager[object]:
    """In which a GPU is the current one: Triton launches its kernels there."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@cache
def has_triton() -> bool:
    """Whether kernels in Triton can be compiled, which takes a C compiler too."""
    return find_spec("triton") is not None and bool(os.environ.get("CC") or which("gcc") or which("clang"))


def slower_without_triton(device: torch.device) -> str | None:
    """What to tell who trains on a GPU without Triton or without the compiler that it wants; else None."""
    if device.type != "cuda" or has_triton():
        return None
    return (
        "Triton, or a C compiler for it (gcc or clang), is missing: no block is compiled, the loss, Lion and AdamW "
        "with `master` run by several operations of PyTorch in place of one kernel, and all take longer; install both"
    )


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Products in ``dtype`` while parameters stay as they are."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype)


_WITH_AUTOCAST = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia")


@contextmanager
def apart_from_autocast() -> Iterator[None]:
    """As if no caller were in a ``torch.autocast`` of its own; on the outside all is as it was.

    An outer autocast would compute in its type what is wanted in fp32. And within it PyTorch keeps the casts of weights
    until the outermost autocast ends: steps in there would change weights, and go on with what they were cast to before
    (a loss of 5.6 where 1.2 is right). So the levels that are entered are left, for this thread.
    """
    levels = torch.autocast_increment_nesting() - 1
    for _ in range(levels + 1):
        torch.autocast_decrement_nesting()
    kinds, keeps = (
        [kind for kind in _WITH_AUTOCAST if torch.is_autocast_enabled(kind)],
        torch.is_autocast_cache_enabled(),
    )
    _set_autocast(kinds, on=False, keeps=True)
    try:
        yield
    finally:
        _set_autocast(kinds, on=True, keeps=keeps)
        for _ in range(levels):
            torch.autocast_increment_nesting()


def _set_autocast(kinds: Sequence[str], *, on: bool, keeps: bool) -> None:
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(keeps)
    for kind in kinds:
        torch.set_autocast_enabled(kind, on)


def each_apart_from_autocast(made: Iterator[T]) -> Iterator[T]:
    """What ``made`` gives, each made so; who takes them has its autocast in between."""
    while True:
        with apart_from_autocast():
            try:
                one = next(made)
            except StopIteration:
                return
        yield one


def seed_here(seed: int, device: torch.device) -> None:
    """Seed PyTorch's generators of the CPU and of ``device`` alone.

    ``torch.manual_seed`` looks after every kind of device there could be, which takes fifty times as long.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)
