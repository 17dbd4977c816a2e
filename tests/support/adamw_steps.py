"""Steps of AdamW for bf16 weights by its Triton kernel, or compiled, beside those of the passes.

TRITON_INTERPRET=1 python -m support.adamw_steps    # the kernel on a CPU, as JSON
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import torch

from kosmos.train.optim import masters
from kosmos.train.optim.adamw import MasterAdamW
from support.lion_on_a_gpu import give_gradients, parameters

MASTERS: list[masters.Master] = ["stochastic", "bits8", "bits16"]


class KernelAdamW(MasterAdamW):
    """By the kernel wherever its parameters are."""

    def _has_kernel(self, parameter: torch.Tensor) -> bool:
        return True


def differences(
    master: masters.Master, device: str = "cpu", make: Callable[..., MasterAdamW] = KernelAdamW
) -> dict[str, float]:
    """Largest differences after six steps, of exact weights and of both means; and the share of weights that differ."""
    made = [[torch.nn.Parameter(p.detach().to(device)) for p in parameters(torch.bfloat16, False)] for _ in range(2)]
    optimizers = [
        make_one(those, 1e-2, weight_decay=0.1, master=master, seed=3)
        for make_one, those in zip((make, MasterAdamW), made, strict=True)
    ]
    for step in range(6):
        for those, optimizer in zip(made, optimizers, strict=True):
            give_gradients(those, step)
            if step == 3:  # counts fewer steps than the others
                those[1].grad = None
            if step == 4:  # as a run that goes on
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if step == 5:  # of this step alone
                assert optimizer.scale_next(0.25)
            optimizer.step()
    weights = [
        torch.cat([_exact(p, optimizer) for p in those]) for those, optimizer in zip(made, optimizers, strict=True)
    ]
    found = {"weights": float((weights[0] - weights[1]).abs().max()), "share": _share(weights[0] != weights[1])}
    for key in ("exp_avg", "exp_avg_sq"):
        means = [
            torch.cat([optimizer.state[p][key].reshape(-1) for p in those])
            for those, optimizer in zip(made, optimizers, strict=True)
        ]
        found[key] = float((means[0] - means[1]).abs().max())
    return found


def _exact(parameter: torch.Tensor, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Its weights with their further bits, as far as they are kept."""
    out = torch.empty(parameter.numel(), device=parameter.device)
    low = optimizer.state[parameter].get("low")
    masters.load(
        parameter.detach().reshape(-1), None if low is None else low.reshape(-1), out, torch.empty_like(out).int()
    )
    return out


def _share(where: torch.Tensor) -> float:
    return float(where.double().mean())


if __name__ == "__main__":
    print(json.dumps({master: differences(master) for master in MASTERS}))
