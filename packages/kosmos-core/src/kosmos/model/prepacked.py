"""Products of few rows on a CPU by weights that oneDNN has laid out anew ("prepacked"), for models that write.

Each token of a document reads all weights. As they lie, PyTorch reads them for one row at a third to two fifths of the
rate of memory, laid out by oneDNN at three fifths to nine tenths (machine C of the results).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Self, TypeGuard

import torch
from torch import Tensor, nn

from kosmos.data.free_memory import memory
from kosmos.model.lora import LoRALinear
from kosmos.model.precision import product_type
from kosmos.model.recompute import runs_compiled

PAYS = 8
"""Tokens behind which weights are laid out: that takes as long as five to eight tokens then save, so that no text takes
more than a few tokens longer for it."""
WORTH = 4_000_000
"""Weights from which on it is done: fewer lie in the processor's caches."""
SHARE = 1 / 8
"""Of the machine's memory that copies may take at most. What is free is not asked: a text is to be the same again."""


class Prepacked:
    """While it is entered, linear maps of ``modules`` become products by prepacked weights, once enough was written.

    On a CPU and without gradients; results are those of PyTorch but for rounding. Weights must not change meanwhile.
    The modules are as they were when it is left.
    """

    def __init__(self, *modules: nn.Module) -> None:
        self._modules, self._tokens = modules, 0
        self._changed: list[nn.Linear] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for layer in self._changed:
            del vars(layer)["forward"]
        self._changed = []

    def count(self) -> None:
        """Tell that a token of each document is written."""
        self._tokens += 1
        if self._tokens == PAYS:
            parts = [part for module in self._modules for part in module.modules()]
            if not any(map(runs_compiled, parts)):
                self._prepack([part for part in parts if _can_be_prepacked(part)])

    def _prepack(self, layers: Sequence[nn.Linear]) -> None:
        there = memory()
        size = sum(layer.weight.numel() * product_type(layer.weight).itemsize for layer in layers)
        if sum(layer.weight.numel() for layer in layers) < WORTH or there is None or size > SHARE * there.total:
            return
        for layer in layers:
            vars(layer)["forward"] = _product(layer)
            self._changed.append(layer)
        torch.clear_autocast_cache()  # which holds what it has cast of them


def _can_be_prepacked(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether it is a linear map as PyTorch computes it, all of whose weight lies here, in a type that oneDNN knows."""
    if type(layer) not in (nn.Linear, LoRALinear) or "forward" in vars(layer):
        return False
    weight = layer.weight
    return type(weight.data) is Tensor and weight.device.type == "cpu" and product_type(weight) in _types()


def _product(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    """Its ``forward`` by a copy of its weight."""
    operations, dtype = torch.ops.mkldnn, product_type(layer.weight)
    weight = operations._reorder_linear_weight(layer.weight.detach().to(dtype))
    bias = None if layer.bias is None else layer.bias.detach().to(dtype)

    def forward(x: Tensor) -> Tensor:
        found: Tensor = operations._linear_pointwise(x.to(dtype), weight, bias, "none", [], "")
        return found + layer.update(x) if isinstance(layer, LoRALinear) else found

    return forward


@functools.cache
def _types() -> tuple[torch.dtype, ...]:
    """Those of which oneDNN multiplies here: none where PyTorch came without it, bf16 where the processor has units."""
    operations = torch.ops.mkldnn
    if not hasattr(operations, "_linear_pointwise"):  # they are those of PyTorch's compiler, and promised to nobody
        return ()
    return (torch.float32, torch.bfloat16) if operations._is_mkldnn_bf16_supported() else (torch.float32,)
