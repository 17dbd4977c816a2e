"""What a training step's products alone would take: every one of them again, by itself, with the shapes it had.

A step cannot be faster than its matrix products, convolutions and attention at the rate at which this machine does
products of exactly these shapes and types; what it takes beyond their sum is everything between them.

That sum is taken in two ways. Like products one behind the other, on the same operands, find these in the caches: what
the machine can multiply at best. In the order of the step, each on operands of its own, they read memory as in a step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
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
        self.calls: list[Hashable] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is ADD_PRODUCT:  # the sum is a pass over memory: 1 ms of 3.3 for 4,160 x 384, on two cores
            self.calls.append((aten.mm.default, _note(args[1:3]), ()))
        elif function in COUNTED:
            self.calls.append((function, _note(args), _note(tuple(sorted((kwargs or {}).items())))))
        return function(*args, **(kwargs or {}))

    def again(self) -> Callable[[], float]:
        """What takes all of them once more, like ones one behind the other, and gives the seconds: everything that they
        need is made here."""
        each = {call: _ready(*call, _made) for call in set(self.calls)}  # type: ignore[misc]
        return partial(_take, [each[call] for call, times in Counter(self.calls).items() for _ in range(times)])

    def in_order(self, operands: Operands) -> Callable[[], float]:
        """The same in the order of the step, each on operands of its own."""
        operands.taken.clear()
        return partial(_take, [_ready(*call, operands.take) for call in self.calls])  # type: ignore[misc]


class Operands:
    """Tensors for the products of a step, no two of which share one; the products of another step may have them too."""

    def __init__(self) -> None:
        self._made: defaultdict[Hashable, list[Tensor]] = defaultdict(list)
        self.taken: Counter[Hashable] = Counter()

    def take(self, note: tuple[Any, ...]) -> Tensor:
        made, number = self._made[note], self.taken[note]
        if number == len(made):
            made.append(_made(note))
        self.taken[note] += 1
        return made[number]


def _take(calls: list[Callable[[], object]]) -> float:
    begin = perf_counter()
    with torch.no_grad():
        for call in calls:
            call()
    return perf_counter() - begin


def _note(value: Any) -> Hashable:
    """Of a tensor its shape, strides and type; of int32, which are where documents begin, its numbers."""
    if isinstance(value, Tensor) and value.dtype == torch.int32:
        return ("bounds", tuple(value.tolist()))
    if isinstance(value, Tensor):
        return ("tensor", tuple(value.shape), value.stride(), value.dtype)
    return tuple(_note(v) for v in value) if isinstance(value, list | tuple) else value


def _made(note: tuple[Any, ...]) -> Tensor:
    if note[0] == "bounds":
        return torch.tensor(note[1], dtype=torch.int32)
    made = torch.empty_strided(note[1], note[2], dtype=note[3])
    return made.normal_() if made.is_floating_point() else made.zero_()


def _given(note: Any, make: Callable[[tuple[Any, ...]], Tensor]) -> Any:
    """What was noted: tensors as ``make`` gives them."""
    if isinstance(note, tuple) and note[:1] in (("bounds",), ("tensor",)):
        return make(note)
    return [_given(n, make) for n in note] if isinstance(note, tuple) else note


def _ready(
    function: Callable[..., Any], args: Any, kwargs: Any, make: Callable[[tuple[Any, ...]], Tensor]
) -> Callable[[], object]:
    with torch.no_grad():
        arguments, options = [_given(a, make) for a in args], {k: _given(v, make) for k, v in kwargs}
        if function is ATTENTION_BACKWARD:  # needs what its forward pass gave
            upstream, q, k, v, _, _, dropout, causal = arguments
            arguments = [upstream, q, k, v, *ATTENTION(q, k, v, dropout, causal, **options), dropout, causal]
    return partial(function, *arguments, **options)
