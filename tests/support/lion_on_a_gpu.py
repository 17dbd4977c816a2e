"""Steps of Lion by its Triton kernel beside those of the passes, as training takes them: whatever changes in between.

TRITON_INTERPRET=1 python -m support.lion_on_a_gpu    # on a CPU, as JSON
"""

from __future__ import annotations

import copy
import json
from typing import Any

import torch
from torch import nn

from kosmos.train.optim.lion import Lion
from kosmos.train.optim.together import Together

CASES: dict[str, tuple[torch.dtype, dict[str, Any], bool]] = {
    "fp32": (torch.float32, {}, True),
    "8-bit momentum": (torch.float32, {"block": 64}, True),
    "stochastic": (torch.bfloat16, {"block": 64, "master": "stochastic"}, True),
    "16 more bits": (torch.bfloat16, {"block": 64, "master": "bits16"}, True),
    "not contiguous": (torch.float32, {"block": 64}, False),
}
"""Dtype of the weights, options, whether all weights are contiguous."""


class KernelLion(Lion):
    """By the kernel wherever its parameters are."""

    def _has_kernel(self, parameter: torch.Tensor) -> bool:
        return True


def parameters(dtype: torch.dtype, contiguous: bool) -> list[nn.Parameter]:
    random = torch.Generator().manual_seed(1)
    made = [torch.randn(shape, generator=random).to(dtype) * 0.1 for shape in ((5, 128), (7,), (0, 64), (3, 64), (33,))]
    if not contiguous:
        made.append((torch.randn(64, 6, generator=random) * 0.1).to(dtype).T)
    return [nn.Parameter(x) for x in made]


def give_gradients(of: list[nn.Parameter], step: int) -> None:
    random = torch.Generator().manual_seed(100 + step)
    for number, parameter in enumerate(of):
        values = torch.randn(parameter.shape, generator=random).to(parameter.dtype)
        if step == 2 and number == 0:  # not aligned
            values = torch.cat([values.flatten()[:1], values.flatten()])[1:].view(parameter.shape)
        if step == 3 and number == 3:  # not contiguous
            values = values.T.contiguous().T
        parameter.grad = values.to(parameter.device)


def differences(case: str) -> dict[str, float]:
    """Largest difference of the weights after seven steps, and how often the tables were made."""
    dtype, options, contiguous = CASES[case]
    ours, plain = (parameters(dtype, contiguous) for _ in range(2))
    optimizers = [KernelLion(ours, 1e-2, weight_decay=0.1, **options), Lion(plain, 1e-2, weight_decay=0.1, **options)]
    made = 0
    kept: list[torch.Tensor | None] = []
    create = Together.__init__

    def counted(*given: Any) -> None:
        nonlocal made
        made += 1
        create(*given)

    Together.__init__ = counted  # type: ignore[method-assign]
    for step in range(7):
        for of, optimizer in zip((ours, plain), optimizers, strict=True):
            give_gradients(of, step)
            if step == 4:  # as a run that goes on
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if step == 5 and not optimizer.scale_next(0.25):  # of this step alone
                for parameter in of:
                    parameter.grad *= 0.25
            optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)
            if step % 2:
                optimizer.prepare()
            if step == 1:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if step == 5:  # another gradient than was prepared, and the same ones changed
                kept.append(of[0].grad)
                of[0].grad = -3 * of[0].grad
                for parameter in of[1:]:
                    parameter.grad *= 0.5
            if step == 6:  # momentum from the beginning
                optimizer.state.clear()
            optimizer.step()
    optimizers[0].prepare()
    optimizers[0].zero_grad()
    assert not optimizers[0]._ready, "gradients that nobody wants any more stay in memory"
    apart = [
        float((a.detach().double() - b.detach().double()).abs().max())
        for a, b in zip(ours, plain, strict=True)
        if a.numel()
    ]
    return {"weights": max(apart), "made": made}


if __name__ == "__main__":
    print(json.dumps({case: differences(case) for case in CASES}))
