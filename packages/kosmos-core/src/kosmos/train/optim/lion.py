"""Lion: the sign of an interpolated momentum, in one pass over memory.

Symbolic Discovery of Optimization Algorithms, arXiv 2302.06675, algorithm 2. fp32 steps are those of lion-pytorch but
for rounding; bf16 weights are computed in fp32 and rounded once, where lion-pytorch rounds after every operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from kosmos.errors import ConfigError
from kosmos.train.optim import blocks, lion_compiled, masters
from kosmos.train.optim.noise import noise_key
from kosmos.train.optim.operands import Operands, Step, gradient_of, local
from kosmos.train.optim.parameterwise import Parameterwise
from kosmos.train.optim.passes import Batch, Passes
from kosmos.train.optim.states import check_keys, first_place, flat, put_back, zeros_like

if TYPE_CHECKING:
    from kosmos.train.optim.together import Together


class Ready(NamedTuple):
    """What a step of some parameters by the kernel needs."""

    together: Together
    gradients: list[Tensor]
    """Of this process and contiguous: kept, because the step knows them by their addresses."""
    pointers: list[int]


class Lion(Parameterwise):
    """Lion for dense parameters, DTensors included, with momentum in the weights' dtype or in 8 bits.

    The state of a parameter is ``exp_avg``, or ``codes`` and ``scales``; with ``master`` also ``low``; and ``step``
    where something is rounded at random. On a GPU a Triton kernel takes the step; without Triton, the passes do.
    """

    scales_as_it_reads = True
    """By the kernel and by the compiled step, else before."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        block: int | None = None,
        master: masters.Master = "none",
        compile: bool | Literal["auto"] = False,
        seed: int = 0,
    ) -> None:
        """
        Args:
            params: parameters or groups of them, each with ``lr`` and ``weight_decay`` of its own if it states them.
            betas: of the update, and of the momentum.
            block: most elements that share a scale of 8-bit momentum; None keeps the momentum in the weights' dtype.
            master: what keeps updates that bf16 weights would round away; see ``masters``.
            compile: compile the step on a CPU, which takes a second or two; ``auto`` where it pays and can be done.
            seed: of what is rounded at random.

        Raises:
            ConfigError: betas outside [0, 1], a block under 64, ``master`` without bf16 weights; with ``compile`` True
                no compiler, or one that fails.
        """
        if len(betas) != 2 or not all(0 <= beta <= 1 for beta in betas):
            raise ConfigError(f"train.optimizer.betas: expected two numbers from 0 to 1, got {betas}")
        if block is not None and block < blocks.LEAST:
            raise ConfigError(f"train.optimizer.block: expected {blocks.LEAST} or more elements, got {block}")
        super().__init__(
            params, {"lr": lr, "betas": tuple(betas), "weight_decay": weight_decay}, master=master, seed=seed
        )
        self.block = block
        self.compile = self._compiles(compile, self.numbers, lion_compiled.binary)
        self._passes = Passes()
        self._together: dict[tuple[int, ...], Together] = {}
        self._ready: dict[tuple[int, ...], Ready] = {}

    @property
    def made_with(self) -> dict[str, Any]:
        """As of ``Parameterwise``."""
        return {**super().made_with, "block": self.block}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As ever; what was prepared for the gradients is forgotten."""
        self._ready.clear()
        super().zero_grad(set_to_none)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As ever; tables of the states before are forgotten."""
        self._together.clear()
        self._ready.clear()
        super().load_state_dict(state_dict)

    @torch.no_grad()
    def prepare(self) -> None:
        """As of ``Parameterwise``: for parameters whose steps a kernel takes."""
        for group in self.param_groups:
            by_kernel = [p for p in group["params"] if p.grad is not None and self._has_kernel(p)]
            # Of what is not contiguous the step takes a copy, whose values are those of the step.
            if by_kernel and all(local(p).is_contiguous() and _dense(p).is_contiguous() for p in by_kernel):
                self._ready[_ids(by_kernel)] = self._look_up(by_kernel)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step for every parameter that has a gradient."""
        try:
            return super().step(closure)
        finally:
            self._ready.clear()

    def _update_all(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        if _ids(parameters) in self._together and self._has_kernel(parameters[0]):  # as before: a GPU waits for this
            self._update_by_kernel(parameters, group)
            return
        by_kernel = [self._has_kernel(p) for p in parameters]
        if any(by_kernel):
            self._update_by_kernel([p for p, has in zip(parameters, by_kernel, strict=True) if has], group)
            parameters = [p for p, has in zip(parameters, by_kernel, strict=True) if not has]
        if self.compile:
            parameters = self._update_compiled(parameters, group)
        if parameters and self._scale != 1.0:
            torch._foreach_mul_([local(gradient_of(p)) for p in parameters], self._scale)
        alone: list[Tensor] = []
        batches: dict[tuple[torch.dtype, torch.device], Batch] = {}
        for parameter in parameters:
            if not self._goes_together(parameter):
                alone.append(parameter)
                continue
            assert parameter.grad is not None
            together = batches.setdefault((parameter.dtype, local(parameter).device), Batch())
            together.add(flat(parameter), flat(parameter.grad), flat(self._state(parameter)["exp_avg"]))
            if together.is_full:
                together.lion(_step_of(group))
        for together in batches.values():
            together.lion(_step_of(group))
        super()._update_all(alone, group)

    def _update_by_kernel(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        ready = self._ready.get(_ids(parameters)) if self._ready else None
        if ready is None or [_dense(p).data_ptr() for p in parameters] != ready.pointers:
            ready = self._look_up(parameters)
        counts = self.block is not None or self.master == "stochastic"
        steps = [_counted(self.state[p]) for p in parameters] if counts else []
        step = replace(_step_of(group, stochastic=self.master == "stochastic"), scale=self._scale)
        ready.together.lion(ready.pointers, steps, self.seed, step)

    def _look_up(self, parameters: list[Tensor]) -> Ready:
        from kosmos.train.optim.together import Together

        gradients = [_dense(p).contiguous() for p in parameters]
        pointers = [gradient.data_ptr() for gradient in gradients]
        asked = _ids(parameters)
        together = self._together.get(asked)
        if together is None or not together.still_holds(self.state, gradients, pointers):
            for parameter in parameters:
                self._state(parameter)
            rows, numbers = [self._operands(p) for p in parameters], [self.numbers[p] for p in parameters]
            together = self._together[asked] = Together(parameters, self.state, rows, numbers)
        return Ready(together, gradients, pointers)

    def _update_compiled(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Those that are left, of types that the compiled step does not know or on another device."""
        left: list[Tensor] = []
        taken: list[tuple[Tensor, Operands, int]] = []
        for parameter in parameters:
            state = self._state(parameter)
            whole = self._operands(parameter)
            if not lion_compiled.can_take(whole):
                left.append(parameter)
                continue
            step = _counted(state)
            if len(whole.weight):  # a shard may hold no row
                taken.append((parameter, whole, self._noise(parameter, step)))
        if taken:
            rows = [(whole, noise) for _, whole, noise in taken]
            common = replace(_step_of(group, stochastic=self.master == "stochastic"), scale=self._scale)
            lion_compiled.lion(rows, common)
        for parameter, whole, _ in taken:
            put_back(whole.weight, parameter)
        return left

    def _goes_together(self, parameter: Tensor) -> bool:
        """Whether it is small and plain: of one dtype, contiguous, no codes or low bits. Makes its state."""
        own, gradient = local(parameter), _dense(parameter)
        return (
            0 < own.numel() <= Batch.SMALL
            and own.dtype in (torch.float32, torch.bfloat16)
            and own.is_contiguous()
            and gradient.dtype is own.dtype
            and self._wanted(parameter) == ["exp_avg"]
            and self._state(parameter)["exp_avg"].dtype is own.dtype
        )

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        step = _counted(self._state(parameter))
        whole = self._operands(parameter)
        if not len(whole.weight):
            return  # a shard may hold no row
        stochastic = self.master == "stochastic" and parameter.dtype is torch.bfloat16
        self._passes.lion(whole, _step_of(group, self._noise(parameter, step), stochastic=stochastic))
        put_back(whole.weight, parameter)

    def _noise(self, parameter: Tensor, step: int) -> int:
        """Key of its random bits in a step counted from 1, 0 where nothing is rounded at random."""
        return noise_key(self.seed, self.numbers[parameter], step, first_place(parameter)) if step else 0

    def _operands(self, parameter: Tensor) -> Operands:
        state = self.state[parameter]
        return Operands(
            flat(parameter),
            flat(_dense(parameter)),
            flat(state["codes" if "codes" in state else "exp_avg"]),
            flat(state["scales"]) if "scales" in state else None,
            flat(state["low"]) if "low" in state else None,
        )

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        wanted = self._wanted(parameter)
        if state:
            check_keys(state, wanted, "Lion")
            if "scales" in state:
                state["scales"] = blocks.shard_scales(state["scales"], parameter)
            return state
        if block := self._block(parameter):
            state["codes"] = zeros_like(parameter, torch.int8)
            state["scales"] = blocks.zero_scales(parameter, block)
        else:
            state["exp_avg"] = zeros_like(parameter)
        if "low" in wanted:
            state["low"] = zeros_like(parameter, masters.LOW_DTYPES[self.master])
        if "step" in wanted:
            state["step"] = 0
        return state

    def _wanted(self, parameter: Tensor) -> list[str]:
        """Names of its state."""
        wanted = ["codes", "scales", "step"] if self._block(parameter) else ["exp_avg"]
        if parameter.dtype is torch.bfloat16 and self.master != "none":
            wanted.append("step" if self.master == "stochastic" else "low")
        return wanted

    def _block(self, parameter: Tensor) -> int | None:
        return blocks.block_of(parameter, self.block) if self.block else None


def _ids(parameters: list[Tensor]) -> tuple[int, ...]:
    return tuple(map(id, parameters))


def _dense(parameter: Tensor) -> Tensor:
    """This process's part of its gradient."""
    assert parameter.grad is not None and not parameter.grad.is_sparse, "gradients are dense"
    return local(parameter.grad)


def _counted(state: dict[str, Any]) -> int:
    """The number of the step that begins, where it is counted because something is rounded at random; else 0."""
    if "step" in state:
        state["step"] += 1
    return int(state.get("step", 0))


def _step_of(group: dict[str, Any], noise: int = 0, *, stochastic: bool = False) -> Step:
    beta1, beta2 = group["betas"]
    return Step(group["lr"], group["weight_decay"], beta1, beta2, noise, stochastic)
