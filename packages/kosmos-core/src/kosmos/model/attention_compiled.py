"""Attention of a packed row on a CPU by ``attention.cpp``: in bf16, where the processor multiplies it, and in the steps
of a run in fp32, where PyTorch leaves a processor's widest units alone (``kosmos.model.products``).

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
from kosmos.model import products
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


def begin_compiling(dtype: torch.dtype) -> None:
    """Have the source compiled for a type while the caller goes on, where the processor is one for it.

    Raises:
        ConfigError: there is no compiler.
    """
    if _multiplies(dtype):
        _compilation(os.getpid(), dtype)


@functools.cache
def binary(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The source compiled for a type; None where the processor, or a compiler that is older than it, is not for it.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    try:
        found = _compilation(os.getpid(), dtype).load() if _multiplies(dtype) else None
    except ConfigError:
        _compilation.cache_clear()  # it can be asked for once
        raise
    if found is None or not found.attends():
        return None
    for name, arguments in _ARGUMENTS.items():
        function = getattr(found, name)
        function.argtypes, function.restype = [*arguments, ctypes.c_int], None
    return found


def _multiplies(dtype: torch.dtype) -> bool:
    if dtype == torch.float32:
        return products.pays()
    return dtype == torch.bfloat16 and bool(torch.cpu.get_capabilities().get("avx512_bf16"))


@functools.cache
def _compilation(process: int, dtype: torch.dtype) -> CppCompilation:
    defined = ["IN_FP32"] if dtype == torch.float32 else []
    return CppCompilation(SOURCE, WHERE, threads=HAS_THREADS, defined=defined)


def can_attend(*given: Tensor, dtype: torch.dtype, scale: float) -> bool:
    """Whether it can take them, [T, H, d] each, to give ``dtype``.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    return all(is_plain(x) for x in given) and scale > 0 and attends_compiled(given[0].device, dtype)


def attends_compiled(device: torch.device, dtype: torch.dtype = torch.bfloat16) -> bool:
    """Whether ``attend`` with ``by_kernels`` is C++ on that device: in fp32 in steps alone, since scores and answers
    are to be the same with and without it.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    wanted = device.type == "cpu" and _multiplies(dtype) and (dtype != torch.float32 or products.in_step())
    return wanted and binary(dtype) is not None


def attend_compiled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    segments: Segments,
    *,
    causal: bool,
    scale: float,
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """q, k, v [T, H, d] each -> [T, H, d] in ``dtype``, bf16 or fp32; see ``kosmos.model.attention.attend``."""
    assert q.shape == k.shape == v.shape and len(q) == segments.total, (q.shape, k.shape, v.shape, segments.total)
    bounds = segments.cu_seqlens(q.device)
    found = _Attention.apply(q, k, v, bounds, causal, scale, dtype)  # type: ignore[no-untyped-call]
    return cast(Tensor, found)


# Of its own, so that it is counted and kept as attention.
@library.custom_op("kosmos::attention_in_documents", mutates_args=())
def attention_in_documents(
    q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """
    Args:
        q, k, v: [T, H, d], all in bf16 or fp32, whose last dimension is contiguous.
        bounds: int32 [S + 1], cumulated lengths.

    Returns:
        [T, H, d] of that type, and fp32 [T, H], the logsumexps.
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
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, causal: bool, scale: float, dtype: torch.dtype
    ) -> Tensor:
        given = [_taken(x, dtype) for x in (q, k, v)]
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
        upstream = _taken(gradients[0], out.dtype)
        found = attention_in_documents_backward(*given, upstream, out, sums, bounds, *ctx.settings)
        return (*(x.to(own) for x, own in zip(found, ctx.dtypes, strict=True)), None, None, None, None)


def _taken(x: Tensor, dtype: torch.dtype) -> Tensor:
    x = x.to(dtype)
    return x if x.stride(2) == 1 else x.contiguous()


def _call(
    name: str, heads: tuple[Tensor, ...], bounds: Tensor, causal: bool, scale: float, others: tuple[Tensor, ...]
) -> None:
    """``others`` are contiguous, in the order of the source."""
    shape, dtype = heads[0].shape, heads[0].dtype
    assert all(x.shape == shape and x.dtype == dtype and x.stride(2) == 1 for x in heads), name
    assert bounds.dtype == torch.int32 and all(x.is_contiguous() for x in (bounds, *others)), name
    lying = [number for x in heads for number in (x, x.stride(0), x.stride(1))]
    call(getattr(binary(dtype), name), name, bounds, len(bounds) - 1, *shape[1:], causal, scale, *lying, *others)
