"""Attention of a packed row on a CPU by ``attention.cpp``: in bf16, where the processor multiplies it.

Documents are taken from the row as they lie, so nothing is padded, put in order or cut into blocks of few shapes; the
logits stay in fp32, and of them nothing is kept but a logsumexp for each query.

Letters: T = tokens of the row, H = heads, d = width of a head, S = documents.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from kosmos.errors import ConfigError
from kosmos.model.cpu_kernels import COUNT, NUMBER, POINTER, WHERE, call, is_plain
from kosmos.model.segments import Segments
from kosmos.runtime.native import HAS_THREADS, CppCompilation

SOURCE = Path(__file__).with_name("attention.cpp")

_ROW = [POINTER, COUNT, COUNT, COUNT, ctypes.c_int, NUMBER]
_HEADS = [POINTER, COUNT, COUNT]
_ARGUMENTS = {
    "attend": [*_ROW, *_HEADS * 3, *[POINTER] * 2],
    "attend_backward": [*_ROW, *_HEADS * 4, *[POINTER] * 5],
}


def begin_compiling() -> None:
    """Have the source compiled while the caller goes on, where the processor is one for it.

    Raises:
        ConfigError: there is no compiler.
    """
    if _multiplies():
        _compilation(os.getpid())


@functools.cache
def binary() -> ctypes.CDLL | None:
    """The compiled source; None where the processor, or a compiler that is older than it, does not multiply bf16.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    try:
        found = _compilation(os.getpid()).load() if _multiplies() else None
    except ConfigError:
        _compilation.cache_clear()  # it can be asked for once
        raise
    if found is None or not found.attends():
        return None
    for name, arguments in _ARGUMENTS.items():
        function = getattr(found, name)
        function.argtypes, function.restype = [*arguments, ctypes.c_int], None
    return found


@functools.cache
def _multiplies() -> bool:
    return bool(torch.cpu.get_capabilities().get("avx512_bf16"))


@functools.cache
def _compilation(process: int) -> CppCompilation:
    return CppCompilation(SOURCE, WHERE, threads=HAS_THREADS)


def can_attend(*given: Tensor, dtype: torch.dtype, scale: float) -> bool:
    """Whether it can take them, [T, H, d] each, to give ``dtype``.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    plain = all(is_plain(x) for x in given)
    return plain and dtype == torch.bfloat16 and scale > 0 and binary() is not None


def attends_compiled(device: torch.device) -> bool:
    """Whether ``attend`` with ``by_kernels`` is C++ in bf16 on that device."""
    return device.type == "cpu" and binary() is not None


def attend_compiled(q: Tensor, k: Tensor, v: Tensor, segments: Segments, *, causal: bool, scale: float) -> Tensor:
    """q, k, v [T, H, d] each -> bf16 [T, H, d]; see ``kosmos.model.attention.attend``."""
    assert q.shape == k.shape == v.shape and len(q) == segments.total, (q.shape, k.shape, v.shape, segments.total)
    found = _Attention.apply(q, k, v, segments.cu_seqlens(q.device), causal, scale)  # type: ignore[no-untyped-call]
    return cast(Tensor, found)


# Of its own, so that it is counted and kept as attention.
@library.custom_op("kosmos::attention_in_documents", mutates_args=())
def attention_in_documents(
    q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """
    Args:
        q, k, v: bf16 [T, H, d], whose last dimension is contiguous.
        bounds: int32 [S + 1], cumulated lengths.

    Returns:
        bf16 [T, H, d], and fp32 [T, H], the logsumexps.
    """
    out, sums = (
        torch.empty_like(q, memory_format=torch.contiguous_format),
        q.new_empty(q.shape[:2], dtype=torch.float32),
    )
    _call("attend", (q, k, v), bounds, causal, scale, (out, sums))
    return out, sums


@attention_in_documents.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(q.shape[:2], dtype=torch.float32)


@library.custom_op("kosmos::attention_in_documents_backward", mutates_args=())
def attention_in_documents_backward(
    q: Tensor, k: Tensor, v: Tensor, upstream: Tensor, out: Tensor, sums: Tensor, bounds: Tensor, causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v, contiguous, by those of ``out``, whose last dimension is contiguous."""
    found = tuple(torch.empty_like(out) for _ in range(3))
    _call("attend_backward", (q, k, v, upstream), bounds, causal, scale, (out, sums, *found))
    return cast(tuple[Tensor, Tensor, Tensor], found)


@attention_in_documents_backward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, upstream: Tensor, out: Tensor, sums: Tensor, bounds: Tensor, causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(out), torch.empty_like(out), torch.empty_like(out)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, causal: bool, scale: float) -> Tensor:
        given = [_taken(x) for x in (q, k, v)]
        out: Tensor
        out, sums = attention_in_documents(*given, bounds, causal, scale)
        ctx.save_for_backward(*given, out, sums, bounds)
        ctx.settings = causal, scale
        ctx.dtypes = q.dtype, k.dtype, v.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *given, out, sums, bounds = ctx.saved_tensors
        found = attention_in_documents_backward(*given, _taken(gradients[0]), out, sums, bounds, *ctx.settings)
        return (*(x.to(own) for x, own in zip(found, ctx.dtypes, strict=True)), None, None, None)


def _taken(x: Tensor) -> Tensor:
    x = x.to(torch.bfloat16)
    return x if x.stride(2) == 1 else x.contiguous()


def _call(
    name: str, heads: tuple[Tensor, ...], bounds: Tensor, causal: bool, scale: float, others: tuple[Tensor, ...]
) -> None:
    """``others`` are contiguous, in the order of the source."""
    shape = heads[0].shape
    assert all(x.shape == shape and x.dtype == torch.bfloat16 and x.stride(2) == 1 for x in heads), name
    assert bounds.dtype == torch.int32 and all(x.is_contiguous() for x in (bounds, *others)), name
    lying = [number for x in heads for number in (x, x.stride(0), x.stride(1))]
    call(getattr(binary(), name), name, bounds, len(bounds) - 1, *shape[1:], causal, scale, *lying, *others)
