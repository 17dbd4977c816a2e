"""Products of few rows on a CPU by weights that oneDNN has laid out anew ("prepacked"), for models that write.

Each token of a document reads all weights. As they lie, PyTorch reads them for one row at a third to two fifths of the
rate of memory, laid out by oneDNN at three fifths to nine tenths (machine C of the results, two threads).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Self, TypeGuard

import torch
from torch import Tensor, nn

from kosmos.data.free_memory import total_bytes
from kosmos.model.lora import LoRALinear
from kosmos.model.precision import product_type
from kosmos.model.products import has_products
from kosmos.model.recompute import runs_compiled
from kosmos.runtime.devices import cpu_multiplies_bf16

PAYS = 8
"""Tokens behind which weights are laid out: by two threads of machine C that takes as long as five to eight tokens then
save."""
WORTH = 4_000_000
"""Weights from which on it is done: fewer lie in the processor's caches."""
SHARE = 1 / 8
"""Of the machine's memory that copies may take at most. What is free is not asked: a text is to be the same again."""

_one_at_a_time = threading.Lock()
"""Held by whose layers multiply by what was laid out: they belong to the model, which other threads may use."""


class Prepacked:
    """While it is entered, the linear layers of a backbone, and the head that stands for its own, become products by
    prepacked weights, once enough was written.

    On a CPU, in the thread that does it and without gradients alone; results are those of PyTorch but for rounding.
    Weights must not change meanwhile. Layers are as they were when it is left.
    """

    def __init__(self, backbone: Any, head: nn.Linear) -> None:
        self._modules, self._tokens = (backbone, head), 0
        self._unused = backbone.output_weight()
        self._changed = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._changed.close()

    def count(self) -> None:
        """Tell that a token of each document is written."""
        self._tokens += 1
        if self._tokens == PAYS:
            parts = [part for module in self._modules for part in module.modules()]
            if not any(map(runs_compiled, parts)):
                self._prepack([p for p in parts if _can_be_prepacked(p) and p.weight is not self._unused])

    def _prepack(self, layers: Sequence[nn.Linear]) -> None:
        there = total_bytes()
        size = sum(layer.weight.numel() * product_type(layer.weight).itemsize for layer in layers)
        if sum(layer.weight.numel() for layer in layers) < WORTH or there is None or size > SHARE * there:
            return
        if not _one_at_a_time.acquire(blocking=False):  # another thread writes: this text is written as weights lie
            return
        with ExitStack() as changed:
            changed.callback(_one_at_a_time.release)
            try:
                for layer in layers:
                    changed.callback(_put_back, layer, vars(layer).get("forward"))
                    vars(layer)["forward"] = _product(layer)
            except RuntimeError:  # memory, or what oneDNN cannot do: the text is written all the same
                return
            self._changed = changed.pop_all()
        torch.clear_autocast_cache()  # which holds what it has cast of them


def _put_back(layer: nn.Module, forward: Callable[..., Tensor] | None) -> None:
    """What it had of its own, or nothing."""
    if forward is None:
        vars(layer).pop("forward", None)
    else:
        vars(layer)["forward"] = forward


def _can_be_prepacked(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether it is a linear map as PyTorch computes it, all of whose weight lies here, in a type that oneDNN knows."""
    if type(layer) not in (nn.Linear, LoRALinear) or ("forward" in vars(layer) and not has_products(layer)):
        return False
    weight: Any = layer.weight
    is_here = type(weight.data) is Tensor and weight.device.type == "cpu"
    return is_here and weight.numel() > 0 and product_type(weight) in _types()


def _product(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    """Its ``forward`` by a copy of its weight."""
    operations, dtype, thread = torch.ops.mkldnn, product_type(layer.weight), threading.get_ident()
    weight = operations._reorder_linear_weight(layer.weight.detach().to(dtype))
    bias = None if layer.bias is None else layer.bias.detach().to(dtype)

    def forward(x: Tensor) -> Tensor:
        # What autocast wants, and whether gradients are, is each thread's own, and may be another within a model.
        is_meant = threading.get_ident() == thread and not torch.is_grad_enabled()
        if not is_meant or product_type(layer.weight) != dtype:
            return type(layer).forward(layer, x)
        found: Tensor = operations._linear_pointwise(x.to(dtype), weight, bias, "none", [], "")
        return found + layer.update(x) if isinstance(layer, LoRALinear) else found

    return forward


@functools.cache
def _types() -> tuple[torch.dtype, ...]:
    """Those of which oneDNN reads weights faster here: with AVX-512, and bf16 where there are units for it."""
    # They are operations of PyTorch's compiler, and promised to nobody.
    has_them = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not has_them or not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return ()
    return (torch.float32, torch.bfloat16) if cpu_multiplies_bf16() else (torch.float32,)
