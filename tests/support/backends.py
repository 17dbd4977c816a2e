"""Lion's step by another backend than its passes, and how far the results lie apart.

TRITON_INTERPRET=1 python -m support.backends    # the Triton kernel on a CPU, as JSON
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import numpy as np
import torch

from kosmos.train.optim import masters
from kosmos.train.optim.operands import Operands, Step
from kosmos.train.optim.passes import Passes

ELEMENTS = 192 * 61  # no multiple of a program's elements, nor of a vector's
CASES = {
    "fp32": (torch.float32, None, None, False),
    "bf16": (torch.bfloat16, None, None, False),
    "fp32, 8-bit momentum": (torch.float32, 192, None, False),
    "bf16, 8-bit momentum, stochastic": (torch.bfloat16, 192, None, True),
    "bf16, 8-bit momentum, 8 bits": (torch.bfloat16, 192, torch.int8, False),
    "bf16, 8-bit momentum, 16 bits": (torch.bfloat16, 192, torch.int16, False),
}
"""Dtype, block, dtype of the low bits, whether weights are rounded at random."""


def operands(dtype: torch.dtype, block: int | None, low: torch.dtype | None, device: str = "cpu") -> Operands:
    random = torch.Generator().manual_seed(0)

    def normal(scale: float) -> torch.Tensor:
        return torch.randn(ELEMENTS, generator=random) * scale

    def whole_numbers(bits: torch.dtype) -> torch.Tensor:
        return torch.randint(torch.iinfo(bits).min, torch.iinfo(bits).max, (ELEMENTS,), generator=random).to(bits)

    made = Operands(
        normal(0.05).to(dtype),
        normal(1.0).to(dtype),
        whole_numbers(torch.int8).clamp(-127) if block else normal(0.1).to(dtype),
        torch.rand(ELEMENTS // block, generator=random) if block else None,
        whole_numbers(low) if low else None,
    )
    return replace(made, **{name: tensor.to(device) for name, tensor in tensors(made)})


def tensors(of: Operands) -> Iterator[tuple[str, torch.Tensor]]:
    for field in fields(of):
        if (value := getattr(of, field.name)) is not None:
            yield field.name, value


ROUNDING = 6e-8
"""The distance of fp32 numbers from 0.5 to 1: weights and momenta are smaller."""


def values(of: Operands) -> dict[str, torch.Tensor]:
    """The tensors in fp64, weights with their low bits."""
    found = {name: tensor.cpu() for name, tensor in tensors(of)}
    if (low := found.pop("low", None)) is not None:
        whole, weight = torch.empty(len(low)), found["weight"]
        masters.load(weight, low, whole, torch.empty(len(low), dtype=torch.int32))
        found["weight"] = whole
    return {name: tensor.double() for name, tensor in found.items()}


def differences(backend: Callable[[Operands, Step], None], case: str, device: str = "cpu") -> dict[str, list[float]]:
    """Tensor to (share of elements apart by more than a rounding, largest difference) after a step by both."""
    dtype, block, low, stochastic = CASES[case]
    step = Step(1e-3, 0.1, 0.9, 0.99, 4_000_000_000, stochastic)
    ours, passed = operands(dtype, block, low, device), operands(dtype, block, low)
    backend(ours, step)
    Passes().lion(passed, step)
    expected = values(passed)
    apart = {name: (value - expected[name]).abs() for name, value in values(ours).items()}
    return {name: [float((d > ROUNDING).double().mean()), float(d.max())] for name, d in apart.items()}


def by_kernel(whole: Operands, step: Step) -> None:
    """Beside two others: a launch takes several, and those that are not aligned are read one by one."""
    from kosmos.train.optim.kernels import Table, kind_of

    others = [replace(whole, **{n: t.clone() for n, t in tensors(whole)}) for _ in range(2)]
    others[1] = replace(others[1], gradient=torch.cat([whole.gradient[:1], whole.gradient])[1:])
    for rows in ([others[0], whole], [others[1]]):
        keys = np.array([1, step.noise][-len(rows) :], dtype=np.uint64)
        Table(kind_of(rows[0]), rows).lion([row.gradient.data_ptr() for row in rows], keys, step)
    assert torch.equal(others[1].weight, whole.weight) and torch.equal(others[1].momentum, whole.momentum)


if __name__ == "__main__":
    print(json.dumps({case: differences(by_kernel, case) for case in CASES}))
