"""Norms and feed-forwards of transformers' models by C++ of ours on a CPU (``kosmos.model.cpu_kernels``).

Nearly every model of transformers brings classes of its own for the same two functions. They are known by what they
compute, not by their names.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kosmos.data.foreign import first_line
from kosmos.model.cpu_kernels import WithKernels, can_gate, can_take, is_plain, rms_norm, swiglu
from kosmos.model.precision import product_type

ADD_NORMS = {"minimax"}
"""Types of models whose layers add to what norms give: in bf16 the residual stream itself would be rounded."""
EPS = 0.125
"""Of norms that are tried out: far from any other, so that a class that has its own is seen."""


def offer_kernels(model: Any) -> None:
    """Have all RMS norms and SwiGLU feed-forwards of a model be able to: their weights stay where they are."""
    adds_norms = model.config.model_type in ADD_NORMS
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for module in model.modules():
            kind: Any = type(module)
            if isinstance(module, WithKernels):
                continue
            if hasattr(module, "variance_epsilon") and not adds_norms and _finds(_is_rms_norm, kind):
                module.__class__ = _with_kernels(kind, _norm)
            elif hasattr(module, "gate_proj") and _finds(_is_silu, module) and _finds(_is_gated, kind):
                module.__class__ = _with_kernels(kind, _gated)


@functools.cache
def _with_kernels(kind: type[nn.Module], forward: Callable[..., Tensor]) -> type[nn.Module]:
    """A class like ``kind`` with that ``forward``, where kernels are to be taken and can."""

    def pickled(self: nn.Module, protocol: object) -> Any:  # the class is not found by its name
        return _unset, (kind, forward), vars(self)

    parts = {
        "forward": forward, "of_transformers": kind.forward, "__module__": kind.__module__, "__reduce_ex__": pickled,
    }  # fmt: skip
    return type(kind.__name__, (kind, WithKernels), parts)


def _unset(kind: Any, forward: Callable[..., Tensor]) -> nn.Module:
    made = _with_kernels(kind, forward)
    return made.__new__(made)


def _norm(self: Any, hidden_states: Tensor) -> Tensor:
    # Products read what becomes of the residual stream, in fp32, and would each round it. Norms of queries and keys get
    # bf16 and give fp32, which is rotated.
    if self.by_kernels and hidden_states.dtype == torch.float32 == self.weight.dtype and is_plain(hidden_states):
        dtype = product_type(hidden_states)
        if can_take(hidden_states, self.weight, gives=dtype):
            return rms_norm(hidden_states, self.weight, self.variance_epsilon, dtype)
    return cast(Tensor, self.of_transformers(hidden_states))


def _gated(self: Any, x: Tensor) -> Tensor:
    if not self.by_kernels:
        return cast(Tensor, self.of_transformers(x))
    gate, inner = self.gate_proj(x), self.up_proj(x)
    return cast(Tensor, self.down_proj(swiglu(gate, inner) if can_gate(gate, inner) else self.act_fn(gate) * inner))


def _finds(what: Callable[[Any], bool], of: Any) -> bool:
    """What could not be tried is none of them, and is not remembered: another time it may be."""
    try:
        return what(of)
    except (AttributeError, TypeError, ValueError):  # it wants other parts or arguments: another function
        return False
    except Exception as error:  # a process that goes on with the run may find something else
        name = getattr(of, "__name__", type(of).__name__)
        warnings.warn(f"hf: {name} computes by PyTorch, as it could not be tried: {first_line(error)}", stacklevel=2)
        return False


@functools.cache
def _is_rms_norm(kind: type[nn.Module]) -> bool:
    x, weight = _drawn((3, 8), (8,))
    norm = _bare(kind, {"weight": weight, "variance_epsilon": EPS})
    return _same(norm(x), F.rms_norm(x, (8,), weight, EPS))


@functools.cache
def _is_gated(kind: type[nn.Module]) -> bool:
    x, gate, inner, out = _drawn((3, 8), (6, 8), (6, 8), (8, 6))
    weights = {"gate_proj": gate, "up_proj": inner, "down_proj": out}
    maps = {name: functools.partial(F.linear, weight=weight) for name, weight in weights.items()}
    found = _bare(kind, {"act_fn": F.silu, **maps})(x)
    return _same(found, F.linear(F.silu(F.linear(x, gate)) * F.linear(x, inner), out))


def _is_silu(module: Any) -> bool:
    x = torch.linspace(-3.0, 3.0, 7, dtype=torch.float32, device="cpu")
    return _same(module.act_fn(x), F.silu(x))


def _drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Wherever and of whatever type a model is being made, and without a draw of its generator."""
    generator = torch.Generator("cpu").manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu") for shape in shapes]


def _bare(kind: type[nn.Module], parts: dict[str, Any]) -> nn.Module:
    """One of a class that was not set up, and has these parts.

    They are no parameters: those have no values where a model is made ``without_memory``.
    """
    made = kind.__new__(kind)
    nn.Module.__init__(made)
    made.__dict__.update(parts)
    return made


def _same(found: Any, expected: Tensor) -> bool:
    return isinstance(found, Tensor) and found.shape == expected.shape and torch.allclose(found, expected, atol=1e-5)
