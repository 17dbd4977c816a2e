"""What is compiled of a model: blocks by torch.compile, one program for all of a part; or on a CPU, in C++, what stands
between products, and attention."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Literal, cast

import torch
from torch import nn

from kosmos.compose import Composition, check_composition
from kosmos.config import TrainConfig
from kosmos.errors import ConfigError
from kosmos.given import warn_caller
from kosmos.model.fp8 import slower_here as fp8_is_slower
from kosmos.model.kernels_in_use import UNCOMPILED, begin_kernels, pays
from kosmos.model.omni import OmniModel
from kosmos.runtime.devices import check_dtype, has_triton, slower_without_triton
from kosmos.train.stopping import SIGNALS

PROGRAMS = 24
"""What the blocks of one part may need: for one length of row, for any, and for any longest document; with gradients
and without; of two kinds of layers; and twice that, for what a model of somebody else does."""


_began: list[float] = []
_listeners: list[Callable[[float], object]] = []


def slower_here(settings: TrainConfig, device: torch.device) -> tuple[str | None, ...]:
    """What a user should know of how it computes on that device."""
    return slower_without_triton(device), fp8_is_slower(settings.fp8, device)


def compile_model(composition: Composition, *, dtype: torch.dtype = torch.float32) -> None:
    """Have a model compute in a training loop of one's own as it does in a run: by ``train.compile`` of its run, with
    blocks that are compiled on a GPU, and by kernels in C++ on a CPU.

    Call it once the model is where it computes, and before it is wrapped or sharded.

    Args:
        composition: of ``compose_run``, or of a run that was loaded.
        dtype: of its products: that of autocast, or of the weights.

    Raises:
        ConfigError: ``train.compile`` is true, and nothing can be compiled here; or an argument is something else.

    Warns:
        UserWarning: no kernels can be compiled, though they would pay.
    """
    check_composition(composition)
    check_dtype(dtype)
    model, wanted = composition.model, composition.config.train.compile
    device = next(model.parameters()).device
    check_compile(model, wanted, device)
    compile_blocks(model, wanted, device)
    if reason := try_kernels(model, wanted, device, dtype):
        warn_caller(f"{UNCOMPILED}: {reason}")


def check_compile(model: OmniModel, wanted: bool | Literal["auto"], device: torch.device) -> None:
    """Whether blocks can be compiled, where they are to be whatever happens: ``auto`` takes what it finds.

    Raises:
        ConfigError: nothing has blocks, or PyTorch's compiler lacks one of C (a GPU) or C++ (a CPU).
    """
    if wanted is not True:
        return
    where = "train.compile"
    if not any(_blocks(part) for part in _parts(model)):
        kind = type(model.backbone).__name__
        raise ConfigError(f"{where}: neither the backbone ({kind}) nor an encoder has blocks to compile; leave it out")
    if device.type == "cuda" and not has_triton():
        raise ConfigError(
            f"{where}: Triton, or a C compiler for it (gcc or clang), is missing; install both or leave it out"
        )
    if device.type == "cpu":
        from torch._inductor import cpp_builder, exc  # takes a second, as it will for the first block

        try:
            cpp_builder.get_cpp_compiler()
        except exc.InvalidCxxCompiler as error:
            raise ConfigError(
                f"{where}: PyTorch finds no C++ compiler ($CXX, else g++); install one or leave {where} out"
            ) from error


def compile_blocks(model: OmniModel, wanted: bool | Literal["auto"], device: torch.device) -> int:
    """Have the blocks compiled at their first call, before the model is sharded.

    Those of the backbone, and of encoders that say ``compiles = True``. Rows have one length but for a few tokens:
    torch compiles once for that length and, where another comes, once more for any.

    Returns:
        The number of blocks.
    """
    if wanted is False or (wanted == "auto" and not (device.type == "cuda" and has_triton())):
        return 0
    parts = _parts(model)
    blocks = [block for part in parts for block in _blocks(part)]
    # Parts whose blocks are of one class share its code: beyond torch's limit a code's blocks would run uncompiled.
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, PROGRAMS * len(parts))
    torch._inductor.config.fallback_random = True  # dropout as in steps that run uncompiled
    _shield_compilers()
    for block in blocks:
        block.compile()
    return len(blocks)


def _shield_compilers() -> None:
    """Have the compilers that PyTorch starts hear no Ctrl-C, which a terminal sends to them as well: the step that
    waits for them would fail of it, where the run is to stop behind the step.

    What is blocked for a thread is so for the processes that it starts. This one hears it by another thread, or behind.
    """
    hooks = torch._dynamo.callback.callback_handler
    if _begin not in hooks.start_callbacks:  # torch.compiler.reset() forgets them
        hooks.register_start_callback(_begin)
        hooks.register_end_callback(_end)


def _begin(_: object) -> None:
    """Of the outermost: one may start others."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    _began.append(perf_counter())


def _end(_: object) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    took = perf_counter() - _began.pop() if _began else 0.0
    for listener in _listeners:
        listener(took)


@contextmanager
def compile_time_told(listener: Callable[[float], object]) -> Iterator[None]:
    """While it is entered, ``listener`` is told behind each compilation of PyTorch how many seconds it took."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def try_kernels(
    model: OmniModel, wanted: bool | Literal["auto"], device: torch.device, dtype: torch.dtype
) -> str | None:
    """Have a model compute by our own kernels where that pays.

    Args:
        dtype: of its products.

    Returns:
        Why it does not though it would pay.
    """
    if not pays(model, wanted, device):
        return None
    try:
        begin_kernels(model, dtype)
    except ConfigError as error:
        return str(error)
    return None


def _parts(model: OmniModel) -> list[nn.Module]:
    """The backbone, and the encoders that can be compiled."""
    encoders = [cast(Any, stream).encoder for stream in model.streams.values()]
    return [model.backbone, *(encoder for encoder in encoders if getattr(encoder, "compiles", False))]


def _blocks(part: nn.Module) -> list[nn.Module]:
    return list(getattr(part, "blocks", ()))


def compilations() -> int:
    """Programs that torch has compiled in this process so far: constant after a warm-up."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
