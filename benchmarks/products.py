"""What a training step's products alone would take: every one of them again, by itself, with the shapes it had.

A step cannot be faster than its matrix products, convolutions and attention at the rate at which this machine does
products of exactly these shapes and types; what it takes beyond their sum is everything between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import kosmos.model.attention_compiled  # all register operations
import kosmos.model.attention_products
import kosmos.model.loss  # noqa: F401

aten = torch.ops.aten
ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu.default
ATTENTION_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
ADD_PRODUCT = torch.ops.kosmos.add_product_.default
COUNTED = {
    aten.mm.default, aten.mm.out, aten.addmm.default, aten.addmm_.default, aten.bmm.default, aten.bmm.out,
    aten.baddbmm.default, aten.baddbmm_.default, aten.baddbmm.out,
    aten.convolution.default, aten.convolution_backward.default, ATTENTION, ATTENTION_BACKWARD,
    torch.ops.kosmos.attention_in_products.default, torch.ops.kosmos.attention_in_documents.default,
    torch.ops.kosmos.attention_in_documents_backward.default,
}  # fmt: skip


class Products(TorchDispatchMode):
    """Notes the products of what runs under it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[Hashable] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is ADD_PRODUCT:  # the sum is a pass over memory: 1 ms of 3.3 for 4,160 x 384, on two cores
            self.calls[aten.mm.default, _note(args[1:3]), ()] += 1
        elif function in COUNTED:
            self.calls[function, _note(args), _note(tuple(sorted((kwargs or {}).items())))] += 1
        return function(*args, **(kwargs or {}))

    def again(self) -> Callable[[], float]:
        """What takes all of them once more, each as often as it was seen, and gives the seconds: everything that they
        need is made here."""
        calls = [(_ready(*call), times) for call, times in self.calls.items()]  # type: ignore[misc]

        def take() -> float:
            begin = perf_counter()
            with torch.no_grad():
                for call, times in calls:
                    for _ in range(times):
                        call()
            return perf_counter() - begin

        return take


def _note(value: Any) -> Hashable:
    """Of a tensor its shape, strides and type; of int32, which are where documents begin, its numbers."""
    if isinstance(value, Tensor) and value.dtype == torch.int32:
        return ("bounds", tuple(value.tolist()))
    if isinstance(value, Tensor):
        return ("tensor", tuple(value.shape), value.stride(), value.dtype)
    return tuple(_note(v) for v in value) if isinstance(value, list | tuple) else value


def _made(note: Any) -> Any:
    if isinstance(note, tuple) and note[:1] == ("bounds",):
        return torch.tensor(note[1], dtype=torch.int32)
    if isinstance(note, tuple) and note[:1] == ("tensor",):
        made = torch.empty_strided(note[1], note[2], dtype=note[3])
        return made.normal_() if made.is_floating_point() else made.zero_()
    return [_made(n) for n in note] if isinstance(note, tuple) else note


def _ready(function: Callable[..., Any], args: Any, kwargs: Any) -> Callable[[], object]:
    with torch.no_grad():
        arguments, options = [_made(a) for a in args], {k: _made(v) for k, v in kwargs}
        if function is ATTENTION_BACKWARD:  # needs what its forward pass gave
            upstream, q, k, v, _, _, dropout, causal = arguments
            arguments = [upstream, q, k, v, *ATTENTION(q, k, v, dropout, causal, **options), dropout, causal]
    return partial(function, *arguments, **options)
