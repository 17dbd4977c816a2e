"""AdamW for bf16 weights that lose no update: PyTorch's fused step on cache-sized parts of fp32 weights.

fp32 weights take ``torch.optim.AdamW``; this one adds only what bf16 weights need. Both means are fp32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from kosmos.train.optim import masters
from kosmos.train.optim.noise import noise_key
from kosmos.train.optim.operands import equal_parts
from kosmos.train.optim.parameterwise import Parameterwise
from kosmos.train.optim.passes import Passes
from kosmos.train.optim.states import check_keys, first_place, flat, put_back, zeros_like


class MasterAdamW(Parameterwise):
    """AdamW with extra bits or stochastic rounding for bf16 weights. DTensors work.

    The state of a parameter is ``exp_avg`` and ``exp_avg_sq`` in fp32, ``step``, and ``low`` with extra bits.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        master: masters.Master = "bits16",
        seed: int = 0,
    ) -> None:
        """
        Args:
            params: parameters or groups of them, each with ``lr`` and ``weight_decay`` of its own if it states them.
            betas: of the running means of the gradient and its square.
            eps: added to the root of the second.
            master: what keeps updates that bf16 weights would round away; see ``masters``.
            seed: of stochastic rounding.

        Raises:
            ConfigError: ``master`` without bf16 weights.
        """
        super().__init__(
            params,
            {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay},
            master=master,
            seed=seed,
        )
        self._passes = Passes()

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        assert parameter.grad is not None and not parameter.grad.is_sparse, "gradients are dense"
        state = self._state(parameter)
        state["step"] += 1
        is_stochastic = self.master == "stochastic" and parameter.dtype is torch.bfloat16
        place = first_place(parameter) if is_stochastic else 0
        noise = noise_key(self.seed, self.numbers[parameter], state["step"], place) if is_stochastic else None
        weight, gradient, low = flat(parameter), flat(parameter.grad), state.get("low")
        means = flat(state["exp_avg"]), flat(state["exp_avg_sq"])
        low = None if low is None else flat(low)
        scratch = self._passes.scratch(weight.device)
        for part in equal_parts(len(weight), scratch.shape[1]):
            rest = None if low is None else low[part]
            value, slope, spare, other = scratch[:, : len(weight[part])]
            masters.load(weight[part], rest, value, spare.view(torch.int32))
            _adamw_part(value, slope.copy_(gradient[part]), [m[part] for m in means], state["step"], group)
            spares = spare.view(torch.int32), other.view(torch.int32)
            masters.store(weight[part], rest, value, *spares, noise=noise, start=part.start)
        put_back(weight, parameter)

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        keeps_low = parameter.dtype is torch.bfloat16 and self.master in masters.LOW_DTYPES
        wanted = ["exp_avg", "exp_avg_sq", "step", *(["low"] if keeps_low else [])]
        if state:
            check_keys(state, wanted, "AdamW")
            return state
        state.update({key: zeros_like(parameter, torch.float32) for key in wanted[:2]}, step=0)
        if keeps_low:
            state["low"] = zeros_like(parameter, masters.LOW_DTYPES[self.master])
        return state


def _adamw_part(value: Tensor, gradient: Tensor, means: list[Tensor], step: int, group: dict[str, Any]) -> None:
    """PyTorch's fused AdamW counts the step itself, one up, in a tensor."""
    (beta1, beta2), count = group["betas"], torch.full((), float(step - 1), device=value.device)
    adamw(
        [value], [gradient], [means[0]], [means[1]], [], [count],
        fused=True, amsgrad=False, beta1=beta1, beta2=beta2, lr=group["lr"], weight_decay=group["weight_decay"],
        eps=group["eps"], maximize=False,
    )  # fmt: skip
