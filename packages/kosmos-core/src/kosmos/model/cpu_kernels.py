"""What stands between products on a CPU by ``cpu_kernels.cpp``: rotations, RMS norms, SwiGLU, sums of fp32 and bf16,
softmax, cross entropy.

Each is one pass over memory or two. As operations of PyTorch most are four to seven, in which a step waits for memory.
Results are those of PyTorch's operations but for rounding. In fp32 they are for training alone, since scores and
answers are to be the same with and without them.

Letters: T = tokens, H = heads, d = width of a head, D = features; n = trained positions, V = vocabulary.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kosmos.runtime.native import load_source

SOURCE = Path(__file__).with_name("cpu_kernels.cpp")
WHERE = "train.compile"

_PLAIN = Tensor, nn.Parameter
_TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
POINTER, COUNT, NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_ARGUMENTS = {
    "rotate": [POINTER, COUNT, COUNT, POINTER, POINTER, NUMBER, POINTER, COUNT, COUNT, COUNT],
    "norm": [POINTER, POINTER, NUMBER, POINTER, POINTER, COUNT, COUNT],
    "norm_backward": [*[POINTER] * 6, COUNT, COUNT],
    "add": [*[POINTER] * 3, COUNT],
    "swiglu": [*[POINTER] * 3, COUNT],
    "swiglu_backward": [*[POINTER] * 5, COUNT],
    "softmax": [POINTER, POINTER, NUMBER, COUNT, POINTER, COUNT, COUNT, COUNT],
    "softmax_backward": [POINTER, POINTER, NUMBER, COUNT, COUNT, COUNT, COUNT],
    "cross_entropy": [POINTER, POINTER, NUMBER, POINTER, POINTER, COUNT, COUNT, COUNT],
}


class WithKernels(nn.Module):
    """Base of a module that can compute by C++ of Kosmos on a CPU: by ``attend(..., by_kernels=self.by_kernels)``."""

    by_kernels = False
    """Whether it does, where that can: a run sets it where it trains a large model on a CPU (``train.compile``)."""


def use_kernels(model: nn.Module, wanted: bool = True) -> None:
    """Have all modules of a model that can compute by kernels do so, or none.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    modules = [module for module in model.modules() if isinstance(module, WithKernels)]
    if modules and wanted:
        binary()
    for module in modules:
        module.by_kernels = wanted


def can_take(*given: Tensor, gives: torch.dtype = torch.float32) -> bool:
    """Whether kernels know where the tensors lie, their types and that of the result, and gradients are wanted or
    something is in bf16: what is scored or written in fp32 is to be the same to the last bit with and without them."""
    low = gives == torch.bfloat16 or any(x.dtype == torch.bfloat16 for x in given)
    known = knows(gives) and all(knows(x.dtype) and is_plain(x) for x in given)
    return known and (low or torch.is_grad_enabled())


def can_gate(gate: Tensor, inner: Tensor) -> bool:
    """Whether ``swiglu`` can take them."""
    return gate.dtype == inner.dtype and can_take(gate, inner)


def knows(dtype: torch.dtype) -> bool:
    return dtype in _TYPES


def is_plain(x: Tensor) -> bool:
    """Whether functions of our own may stand for PyTorch's: on a CPU, no DTensor, nothing being compiled or traced."""
    seen = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return x.device.type == "cpu" and type(x) in _PLAIN and not seen


@functools.cache
def binary() -> ctypes.CDLL:
    """The compiled source.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    found = load_source(SOURCE, WHERE)
    for name, arguments in _ARGUMENTS.items():
        for kind in _TYPES.values():
            function = getattr(found, f"{name}_{kind}")
            function.argtypes, function.restype = [*arguments, ctypes.c_int], None
    return found


def _call(name: str, dtype: torch.dtype, *arguments: Any) -> None:
    """Tensors are given by where they begin; all of them are contiguous where the source cannot be told otherwise."""
    call(_function(name, dtype), name, *arguments)


def call(function: Any, name: str, *arguments: Any) -> None:
    """A function of C++, with this thread's number of threads behind the ``arguments``."""
    given = []
    for x in arguments:  # a step makes hundreds of calls
        if isinstance(x, Tensor):
            assert x.is_cpu, name
            where = x.data_ptr()
            assert where or not x.numel(), f"{name}: a {type(x).__name__} without memory of its own"
            x = where
        given.append(x)
    function(*given, torch.get_num_threads())


@functools.cache
def _function(name: str, dtype: torch.dtype) -> Any:
    return getattr(binary(), f"{name}_{_TYPES[dtype]}")


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, H, d], cos and sin fp32 [T, 1, d / 2] -> [T, H, d] of the type of ``x``."""
    return cast(Tensor, _Rotate.apply(x, cos.contiguous(), sin.contiguous()))  # type: ignore[no-untyped-call]


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """x fp32 [..., D], weight fp32 [D] -> [..., D] in ``dtype``."""
    return cast(Tensor, _Norm.apply(x.contiguous(), weight.contiguous(), eps, dtype))  # type: ignore[no-untyped-call]


def swiglu(gate: Tensor, inner: Tensor) -> Tensor:
    """silu(gate) * inner, all of one shape and type."""
    return cast(Tensor, _SwiGLU.apply(gate.contiguous(), inner.contiguous()))  # type: ignore[no-untyped-call]


def add(x: Tensor, y: Tensor) -> Tensor:
    """x fp32 + y in bf16 (or fp32), of one shape -> fp32. PyTorch widens ``y`` in memory first."""
    return cast(Tensor, _Sum.apply(x.contiguous(), y.contiguous()))  # type: ignore[no-untyped-call]


def add_(x: Tensor, y: Tensor) -> None:
    """x fp32 += y in bf16 (or fp32), of one shape, both contiguous; without gradients."""
    _added(x, y, x)


def softmax(logits: Tensor, bias: Tensor | None, scale: float, first: int | None, out: Tensor) -> Tensor:
    """Softmax of logits times ``scale``, in training.

    Args:
        logits: [matrices, rows, keys].
        bias: [matrices, 1, keys] or None, added to them.
        first: of row r the first ``first`` + r + 1 keys are seen; all where it is None.
        out: of the logits' shape and type.
    """
    assert out.dtype == logits.dtype and (bias is None or bias.dtype == logits.dtype), (logits.dtype, out.dtype)
    assert logits.is_contiguous() and out.is_contiguous() and logits.shape == out.shape, (logits.shape, out.shape)
    assert bias is None or (bias.is_contiguous() and bias.numel() == logits[:, 0].numel()), logits.shape
    assert bias is None or first is None
    _call("softmax", logits.dtype, logits, bias, scale, -1 if first is None else first, out, *logits.shape)
    return out


def softmax_backward_(changes: Tensor, shares: Tensor, scale: float, first: int | None) -> Tensor:
    """Make the gradients of such shares those of the logits, before they were multiplied by ``scale``.

    Args:
        changes, shares: [matrices, rows, keys], contiguous, of one type.
        first: as in ``softmax``; of keys that are not seen it gives zeros, whatever stands there.
    """
    assert changes.dtype == shares.dtype and changes.shape == shares.shape, (changes.shape, shares.shape)
    assert changes.is_contiguous() and shares.is_contiguous()
    _call("softmax_backward", changes.dtype, shares, changes, scale, -1 if first is None else first, *changes.shape)
    return changes


def cross_entropy_(logits: Tensor, targets: Tensor, losses: Tensor, added: Tensor | None, z: float) -> Tensor:
    """Write the losses of the first n rows, and make the logits the gradients of their sum, zero in the rows behind.

    Args:
        logits: [n or more, V].
        targets: int64 [n].
        losses: fp32 [n], written to: cross entropies.
        added: fp32 [n] or None, written to: ``z`` times the square of each logsumexp, which the gradients then know.

    Raises:
        IndexError: a target is no token.
    """
    count, (rows, vocabulary) = len(targets), logits.shape
    assert count <= rows and (targets.dtype, losses.dtype) == (torch.int64, torch.float32), (rows, losses.dtype)
    assert losses.shape == targets.shape and (
        added is None or (added.shape, added.dtype) == (losses.shape, losses.dtype)
    )
    assert all(x is None or x.is_contiguous() for x in (logits, targets, losses, added))
    if count and not 0 <= int(targets.min()) <= int(targets.max()) < vocabulary:
        raise IndexError(f"targets from {int(targets.min())} to {int(targets.max())} of {vocabulary} tokens")
    z = 0.0 if added is None else z
    _call("cross_entropy", logits.dtype, logits, targets, z, losses, added, count, rows, vocabulary)
    return logits


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    x = x if x.stride(-1) == 1 else x.contiguous()
    tokens, heads, width = x.shape
    assert cos.shape == sin.shape == (tokens, 1, width // 2) and width % 2 == 0, (x.shape, cos.shape)
    assert cos.dtype == sin.dtype == torch.float32, (cos.dtype, sin.dtype)
    out = x.new_empty(x.shape)
    _call("rotate", x.dtype, x, x.stride(0), x.stride(1), cos, sin, sign, out, tokens, heads, width // 2)
    return out


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return _rotated(gradients[0], cos, sin, -1.0), None, None


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        rows, width = x.numel() // len(weight), len(weight)
        assert x.dtype == weight.dtype == torch.float32 and x.shape[-1] == width, (x.dtype, weight.dtype, x.shape)
        out, scales = x.new_empty(x.shape, dtype=dtype), x.new_empty(rows)
        _call("norm", dtype, x, weight, eps, out, scales, rows, width)
        ctx.save_for_backward(x, weight, scales)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scales = ctx.saved_tensors
        upstream, of_x, of_weight = gradients[0].contiguous(), torch.empty_like(x), torch.empty_like(weight)
        _call("norm_backward", upstream.dtype, upstream, x, weight, scales, of_x, of_weight, len(scales), len(weight))
        return of_x, of_weight, None, None


def _added(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    assert x.shape == y.shape == out.shape and x.dtype == out.dtype == torch.float32, (x.shape, y.shape, x.dtype)
    assert all(given.is_contiguous() for given in (x, y, out)), (x.stride(), y.stride())
    _call("add", y.dtype, x, y, out, x.numel())
    return out


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.dtype = y.dtype
        return _added(x, y, torch.empty_like(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        return gradients[0], gradients[0].to(ctx.dtype)


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, inner: Tensor) -> Tensor:
        assert gate.shape == inner.shape and gate.dtype == inner.dtype, (gate.shape, inner.shape)
        ctx.save_for_backward(gate, inner)
        out = torch.empty_like(gate)
        _call("swiglu", gate.dtype, gate, inner, out, gate.numel())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gate, inner = ctx.saved_tensors
        upstream, of_gate, of_inner = gradients[0].contiguous(), torch.empty_like(gate), torch.empty_like(inner)
        _call("swiglu_backward", gate.dtype, upstream, gate, inner, of_gate, of_inner, gate.numel())
        return of_gate, of_inner
