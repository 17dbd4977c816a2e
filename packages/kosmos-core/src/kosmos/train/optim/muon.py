"""Muon: matrices move by the orthogonal matrix nearest to their momentum, all else by AdamW.

The step of a matrix is scaled to the size of AdamW's, so that one learning rate and one weight decay serve for both.

Source: Keller Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024); the scale is that of "Muon is
Scalable for LLM Training", arXiv 2502.16982.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import sqrt
from typing import Any, Literal

import torch
from torch import Tensor

from kosmos.errors import ConfigError
from kosmos.train.optim import masters
from kosmos.train.optim.adamw import MasterAdamW
from kosmos.train.optim.newton_schulz import STEPS, newton_schulz
from kosmos.train.optim.operands import gradient_of, local
from kosmos.train.optim.whole import Spread, on_whole, processes_of, spread_of

AT_ONCE = 2**26
"""Most elements of the matrices that a process takes at once, if there are two: small ones are better taken together,
and beside large ones nothing is to be gained by more memory."""
RMS = 0.2
"""Of an update of AdamW, about: what matrices move by too."""


class Muon(MasterAdamW):
    """Muon for dense parameters, DTensors included.

    The state of a matrix is ``momentum`` in fp32, that of other parameters AdamW's; with ``master`` also ``low``, or
    ``step`` where something is rounded at random.
    """

    needs_others = True
    scales_as_it_reads = False

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        *,
        momentum: float = 0.95,
        steps: int = STEPS,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        master: masters.Master = "none",
        compile: bool | Literal["auto"] = False,
        seed: int = 0,
    ) -> None:
        """
        Args:
            params: parameters or groups of them, each with ``lr`` and ``weight_decay`` of its own if it states them. Of
                a group with ``names`` those are matrices that are among its ``matrices``, else those of two dimensions.
            momentum: what a matrix's momentum keeps from step to step; Nesterov's.
            steps: of the iteration that makes it orthogonal.
            betas, eps: of AdamW.
            master: what keeps updates that bf16 weights would round away; see ``masters``.
            compile: compile AdamW's step of bf16 weights on a CPU, if there are any; ``auto`` where it pays and can be
                done.
            seed: of stochastic rounding.

        Raises:
            ConfigError: ``momentum`` or ``betas`` outside [0, 1), a negative ``eps``, no step, ``master`` without bf16
                weights, or a matrix that ``parallel.tensor`` cuts; with ``compile`` True no compiler, or one that
                fails.
        """
        if not 0 <= momentum < 1:
            raise ConfigError(f"train.optimizer.momentum: expected 0 or more, below 1, got {momentum}")
        if steps < 1:
            raise ConfigError(f"train.optimizer.steps: expected 1 or more, got {steps}")
        self.momentum, self._matrices = momentum, set[Tensor]()
        self._orthogonal = partial(newton_schulz, steps=steps)
        super().__init__(
            params, lr, betas=betas, eps=eps, weight_decay=weight_decay, master=master, compile=compile, seed=seed
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Which of its parameters are matrices is kept."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        names = group.get("names", [""] * len(group["params"]))
        for name, parameter in zip(names, group["params"], strict=True):
            if name in group["matrices"] if "matrices" in group else parameter.ndim == 2:
                spread_of(parameter)
                self._matrices.add(parameter)

    def _by_adamw(self) -> Iterator[Tensor]:
        return (p for p in super()._by_adamw() if p not in self._matrices)

    def _update_all(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        super()._update_all([p for p in parameters if p not in self._matrices], group)
        alike: dict[tuple[Any, ...], list[Tensor]] = {}
        for parameter in parameters:
            if parameter in self._matrices:
                kind = tuple(parameter.shape), local(parameter).device, spread_of(parameter)
                alike.setdefault(kind, []).append(parameter)
        for (_, _, spread), those in alike.items():
            for batch in _batches(those, spread):
                self._update_matrices(batch, group, spread)

    def _update_matrices(self, matrices: list[Tensor], group: dict[str, Any], spread: Spread) -> None:
        """One step of matrices of one shape."""
        slopes = [self._slope(matrix).to(torch.bfloat16) for matrix in matrices]
        updates = on_whole(self._orthogonal, slopes, matrices[0], spread)
        kept, rate = 1 - group["lr"] * group["weight_decay"], group["lr"] * RMS * sqrt(max(matrices[0].shape[-2:]))
        for matrix, update in zip(matrices, updates, strict=True):
            if matrix.dtype is torch.float32:
                local(matrix).mul_(kept).add_(update, alpha=-rate)
                continue

            self._move(matrix, self.state[matrix], partial(_move_part, update.reshape(-1), kept, rate))

    def _slope(self, matrix: Tensor) -> Tensor:
        """What Nesterov's momentum comes to, of this process, in fp32."""
        state = self._state(matrix)
        if "step" in state:
            state["step"] += 1
        gradient, momentum = local(gradient_of(matrix)).float(), local(state["momentum"])
        momentum.lerp_(gradient, 1 - self.momentum)
        return gradient.lerp(momentum, self.momentum)

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        if parameter not in self._matrices:
            return super()._state(parameter)
        is_counted = self.master == "stochastic" and parameter.dtype is torch.bfloat16
        return self._kept(parameter, ["momentum"], "Muon", counts=is_counted)


def _move_part(update: Tensor, kept: float, rate: float, part: slice, value: Tensor, room: Tensor) -> None:
    value.mul_(kept).add_(update[part], alpha=-rate)


def _batches(matrices: Sequence[Tensor], spread: Spread) -> Iterator[list[Tensor]]:
    """As many at once as memory allows, a multiple of the processes that share them out. Of copies each has all."""
    processes = processes_of(spread)
    copies = processes if spread is not None and all(p.is_replicate() for p in spread[1]) else 1
    most = max(1, AT_ONCE // max(1, matrices[0].numel()) // copies) * processes
    for start in range(0, len(matrices), most):
        yield list(matrices[start : start + most])
