"""The same gradients for several optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

SHAPES = ((300, 192), (1000,), (64, 3, 5, 5), (65,), (1,), ())


def stepped(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    *,
    steps: int = 10,
    dtype: torch.dtype = torch.float32,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    seed: int = 0,
) -> tuple[list[nn.Parameter], Any]:
    """Normal weights of 0.05 after steps with normal gradients of 1, and their optimizer."""
    random = torch.Generator().manual_seed(seed)
    parameters = [nn.Parameter((torch.randn(shape, generator=random) * 0.05).to(dtype)) for shape in shapes]
    optimizer = make(parameters)
    for _ in range(steps):
        give_gradients(parameters, random)
        optimizer.step()
    return parameters, optimizer


def give_gradients(parameters: Sequence[nn.Parameter], random: torch.Generator) -> None:
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=random).to(parameter.dtype)


def state_bytes(optimizer: torch.optim.Optimizer) -> float:
    """Bytes of state for each parameter."""
    parameters = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    tensors = [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors) / parameters


@contextmanager
def threads_of_torch(number: int) -> Iterator[None]:
    """So many; tests have one."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
