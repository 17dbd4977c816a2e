"""AdamW: PyTorch's fused step, and on cache-sized parts of fp32 weights, for bf16 weights that lose no update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from kosmos.errors import CheckpointError, ConfigError
from kosmos.train.optim import adamw_compiled, masters
from kosmos.train.optim.noise import noise_key
from kosmos.train.optim.operands import equal_parts, gradient_of, local
from kosmos.train.optim.parameterwise import Parameterwise
from kosmos.train.optim.passes import Passes
from kosmos.train.optim.states import check_keys, first_place, flat, put_back, zeros_like

LEAST_FACTOR = 1e-37
"""Of a step that divides by its inverse, which fp32 has to hold."""


class FusedAdamW(torch.optim.AdamW):
    """``torch.optim.AdamW``, which scales gradients as it reads them; PyTorch's step writes them back so, too."""

    made_with: ClassVar[dict[str, Any]] = {"master": "none"}
    """As of ``Parameterwise``."""

    def __init__(self, params: Any, **options: Any) -> None:
        super().__init__(params, fused=True, **options)

    def scale_next(self, factor: float) -> bool:
        """Multiply all gradients by ``factor`` as the next step reads them: see ``Parameterwise.scale_next``."""
        if factor < LEAST_FACTOR:
            return False
        first = self.param_groups[0]["params"][0]
        # What a scaler of gradients hands to this step, which divides by it.
        self.grad_scale = torch.full((), 1 / factor, dtype=torch.float32, device=first.device)
        return True

    def step(self, closure: Any = None) -> Any:
        try:
            return super().step(closure)
        finally:
            self.__dict__.pop("grad_scale", None)


class MasterAdamW(Parameterwise):
    """AdamW with extra bits or stochastic rounding for bf16 weights. DTensors work. Both means are fp32.

    The state of a parameter is ``exp_avg`` and ``exp_avg_sq`` in fp32, ``step``, and ``low`` with extra bits. On a GPU
    a Triton kernel takes the step of bf16 weights, on a CPU compiled C++; without either PyTorch's, part by part.
    """

    scales_as_it_reads = True
    """Gradients of bf16 weights; those of fp32 weights are scaled before."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        master: masters.Master = "bits16",
        compile: bool | Literal["auto"] = False,
        seed: int = 0,
    ) -> None:
        """
        Args:
            params: parameters or groups of them, each with ``lr`` and ``weight_decay`` of its own if it states them.
            betas: of the running means of the gradient and its square.
            eps: added to the root of the second.
            master: what keeps updates that bf16 weights would round away; see ``masters``.
            compile: compile the step of bf16 weights on a CPU; ``auto`` where it pays and can be done.
            seed: of stochastic rounding.

        Raises:
            ConfigError: ``betas`` or ``eps`` that ``check_means`` refuses, or ``master`` without bf16 weights; with
                ``compile`` True no compiler, or one that fails.
        """
        check_means(betas, eps)
        super().__init__(
            params,
            {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay},
            master=master,
            seed=seed,
        )
        self.compile = self._compiles(compile, self._by_adamw(), adamw_compiled.binary)
        self._passes = Passes()

    def _by_adamw(self) -> Iterator[Tensor]:
        """Parameters whose step can be compiled."""
        return (p for p in self.numbers if p.dtype is torch.bfloat16)

    def _update_all(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Of fp32 weights nothing is rounded away: all of them take their steps in one call."""
        exact = [parameter for parameter in parameters if parameter.dtype is torch.float32]
        rounded = [parameter for parameter in parameters if parameter.dtype is not torch.float32]
        for parameter in self._update_compiled(rounded, group) if self.compile else rounded:
            self._update(parameter, group)
        if exact and self._scale != 1.0:
            torch._foreach_mul_([local(gradient_of(p)) for p in exact], self._scale)
        by_step: dict[int, list[Tensor]] = {}
        for parameter in exact:
            state = self._state(parameter)
            state["step"] += 1
            by_step.setdefault(state["step"], []).append(parameter)
        for step, those in by_step.items():
            weights = [flat(parameter) for parameter in those]
            first, second = ([flat(self.state[p][key]) for p in those] for key in ("exp_avg", "exp_avg_sq"))
            _adamw(weights, [flat(gradient_of(parameter)) for parameter in those], first, second, step, group)
            for weight, parameter in zip(weights, those, strict=True):
                put_back(weight, parameter)

    def _update_compiled(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Those that are left, of types that the compiled step does not know or on another device."""
        left: list[Tensor] = []
        taken: list[tuple[Tensor, adamw_compiled.Row]] = []
        for parameter in parameters:
            weight, gradient = flat(parameter), flat(gradient_of(parameter))
            if not adamw_compiled.can_take(weight, gradient):
                left.append(parameter)
                continue
            state = self._state(parameter)
            state["step"] += 1
            if len(weight):  # a shard may hold no row
                means, noise = (flat(state["exp_avg"]), flat(state["exp_avg_sq"])), self._noise(parameter, state)
                row = adamw_compiled.Row(weight, gradient, *means, _low(state), state["step"], noise)
                taken.append((parameter, row))
        if taken:
            adamw_compiled.adamw([row for _, row in taken], group, self._scale)
        for parameter, row in taken:
            put_back(row.weight, parameter)
        return left

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, gradient = self._state(parameter), flat(gradient_of(parameter))
        state["step"] += 1
        means = flat(state["exp_avg"]), flat(state["exp_avg_sq"])
        if self._has_kernel(parameter):
            from kosmos.train.optim.adamw_kernel import adamw as by_kernel

            weight, low, noise = flat(parameter), _low(state), self._noise(parameter, state)
            by_kernel(weight, gradient, means, low, state["step"], group, scale=self._scale, noise=noise)
            put_back(weight, parameter)
            return

        def move(part: slice, value: Tensor, slope: Tensor) -> None:
            first, second = (mean[part] for mean in means)
            slope.copy_(gradient[part])
            if self._scale != 1.0:
                slope.mul_(self._scale)
            _adamw([value], [slope], [first], [second], state["step"], group)

        self._move(parameter, state, move)

    def _move(self, parameter: Tensor, state: dict[str, Any], move: Callable[[slice, Tensor, Tensor], None]) -> None:
        """Have ``move`` change the weights in fp32, part by part, and round them as ``master`` says.

        Args:
            state: of the parameter; with stochastic rounding its ``step`` is counted, with extra bits it has ``low``.
            move: takes which elements of this process, their weights in fp32, and as much memory, in fp32, to use.
        """
        noise = self._noise(parameter, state)
        weight, low = flat(parameter), _low(state)
        scratch = self._passes.scratch(weight.device)
        for part in equal_parts(len(weight), scratch.shape[1]):
            rest = None if low is None else low[part]
            value, room, spare, other = scratch[:, : len(weight[part])]
            masters.load(weight[part], rest, value, spare.view(torch.int32))
            move(part, value, room)
            spares = spare.view(torch.int32), other.view(torch.int32)
            masters.store(weight[part], rest, value, *spares, noise=noise, start=part.start)
        put_back(weight, parameter)

    def _noise(self, parameter: Tensor, state: dict[str, Any]) -> int | None:
        """Key of its random bits in this step, None where nothing is rounded at random."""
        if self.master != "stochastic" or parameter.dtype is not torch.bfloat16:
            return None
        return noise_key(self.seed, self.numbers[parameter], state["step"], first_place(parameter))

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        """Its state, made where it has none: see the class."""
        return self._kept(parameter, ["exp_avg", "exp_avg_sq"], "AdamW", counts=True)

    def _kept(self, parameter: Tensor, means: list[str], optimizer: str, *, counts: bool) -> dict[str, Any]:
        """A state of ``means`` in fp32, of ``low`` with extra bits, and with ``counts`` of the steps taken.

        Raises:
            CheckpointError: the parameter has another one.
        """
        state: dict[str, Any] = self.state[parameter]
        keeps_low = parameter.dtype is torch.bfloat16 and self.master in masters.LOW_DTYPES
        if state:
            check_keys(state, [*means, *(["step"] if counts else []), *(["low"] if keeps_low else [])], optimizer)
            if kinds := {state[key].dtype for key in means} - {torch.float32}:  # AdamW's without master
                raise CheckpointError(
                    f"the optimizer state is in {kinds.pop()}, {optimizer} keeps fp32: leave master as it was"
                )
            return state
        state.update({key: zeros_like(parameter, torch.float32) for key in means})
        if counts:
            state["step"] = 0
        if keeps_low:
            state["low"] = zeros_like(parameter, masters.LOW_DTYPES[self.master])
        return state


def _low(state: dict[str, Any]) -> Tensor | None:
    """This process's bits below bf16 weights, in one dimension, where there are any."""
    return flat(state["low"]) if "low" in state else None


def check_means(betas: tuple[float, float], eps: float) -> None:
    """Raises ConfigError where AdamW cannot step by them: a mean that keeps all would be divided by 0."""
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ConfigError(f"train.optimizer.betas: expected two numbers of 0 or more, below 1, got {list(betas)}")
    if eps < 0:
        raise ConfigError(f"train.optimizer.eps: expected 0 or more, got {eps}")


def _adamw(
    weights: list[Tensor],
    gradients: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    step: int,
    group: dict[str, Any],
) -> None:
    """PyTorch's fused AdamW counts the steps itself, one up, in tensors."""
    beta1, beta2 = group["betas"]
    counts = torch.full((len(weights),), float(step - 1), device=weights[0].device)
    adamw(
        weights, gradients, means, squares, [], list(counts.unbind()),
        fused=True, amsgrad=False, beta1=beta1, beta2=beta2, lr=group["lr"], weight_decay=group["weight_decay"],
        eps=group["eps"], maximize=False,
    )  # fmt: skip
