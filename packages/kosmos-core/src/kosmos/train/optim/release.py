"""Gradient release: every parameter takes its step as soon as its gradient is complete, which is then freed.

Gradients of the whole model never stand in memory at once. Nothing may need them all: no clipping by their common
norm, no accumulation over rows, no sum over processes after the backward pass.

Source: Fusing gradient accumulation and optimizer steps is known as LOMO (arXiv 2306.09782) and, in PyTorch, as
"optimizer in backward"; here any optimizer that treats parameters one at a time serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from kosmos.errors import ConfigError
from kosmos.train.optim.operands import Cut, cut_of, local, summed


def check_release(
    *,
    optimizer: str = "lion",
    parameterwise: bool = True,
    clip_norm: float | None,
    rows_per_step: int,
    world_size: int = 1,
    is_sharded: bool = False,
    is_offloaded: bool = False,
) -> None:
    """Refuse gradient release where a step needs all gradients at once.

    Args:
        optimizer: its name.
        parameterwise: whether its descriptor says that it may be called for one parameter after the other.
        clip_norm: ``train.clip_norm``.
        rows_per_step: rows whose gradients one process adds up in a step: lanes over processes.
        world_size: processes.
        is_sharded: whether gradients are reduced during the backward pass (FSDP), not after it.
        is_offloaded: whether they go to the CPU then, where they are complete only after the backward pass.

    Raises:
        ConfigError: the first obstacle and what to do about it.
    """
    where = "train.release_gradients"
    if not parameterwise:
        raise ConfigError(
            f"{where}: steps one parameter at a time, and optimizer {optimizer} does not say that its steps are the "
            f"same then; leave {where} out, or have its plugin declare it (OptimizerSpec(..., parameterwise=True))"
        )
    if clip_norm is not None:
        raise ConfigError(
            f"{where}: gradients are freed one by one, train.clip_norm {clip_norm:g} needs the norm of all of them; "
            f"set train.clip_norm to null (Lion's step does not grow with the gradient) or leave {where} out"
        )
    if rows_per_step > 1:
        raise ConfigError(
            f"{where}: gradients are freed one by one, but a step adds up those of {rows_per_step} rows on a process; "
            f"set data.lanes to {world_size} (and data.tokens_per_pack higher) or leave {where} out"
        )
    if world_size > 1 and not is_sharded:
        raise ConfigError(
            f"{where}: gradients are freed before {world_size} processes could add theirs up; "
            f"shard the model or leave {where} out"
        )
    if is_offloaded:
        raise ConfigError(
            f"{where}: with parallel.offload gradients are on their way to the CPU until the backward pass has ended; "
            "leave one out"
        )


class GradientRelease:
    """Steps an optimizer during the backward pass; ``finish`` takes the place of ``optimizer.step()``.

    Use as a context, or call ``remove`` at the end. Set learning rates before the backward pass.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        """
        Args:
            optimizer: one whose step for a parameter depends on no other parameter (Lion, AdamW, SGD).

        Raises:
            ConfigError: processes meet in its steps, and are several: each has its gradients in an order of its own.
        """
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        if several and getattr(optimizer, "needs_others", False):
            raise ConfigError(
                f"train.release_gradients: processes exchange matrices in a step of {type(optimizer).__name__}, and "
                "gradients are complete in another order on each; leave it out, or take another optimizer"
            )
        self._optimizer = optimizer
        self._group_of = {p: i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
        self._alone = {p: alone for group in optimizer.param_groups for p, alone in _each_alone(group)}
        self._squares: dict[Tensor, Tensor] = {}
        self._handles = [p.register_post_accumulate_grad_hook(self._release) for p in self._group_of]

    def finish(self) -> Tensor:
        """After the backward pass: parameters that it did not reach take their step with a gradient of zero.

        Returns:
            The norm of all gradients, where they were: a GPU is not waited for. All ranks call this.
        """
        for parameter in self._group_of:
            if parameter not in self._squares:
                parameter.grad = torch.zeros_like(parameter)
                self._release(parameter)
        found, self._squares = self._squares, {}
        parts: dict[Cut, list[Tensor]] = {}
        for parameter in self._group_of:  # hooks have another order, and not the same on every rank
            parts.setdefault(cut_of(parameter), []).append(found[parameter])
        sums = [summed(torch.stack(squares).sum(), cut) for cut, squares in parts.items()]
        return torch.stack(sums).sum().sqrt() if sums else torch.zeros(())

    def remove(self) -> None:
        """Leave gradients to the optimizer again."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> GradientRelease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    @torch.no_grad()
    def _release(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self._squares[parameter] = (
            torch.linalg.vector_norm(local(parameter.grad), dtype=torch.float32).double().square()
        )
        self._step_alone(parameter)
        parameter.grad = None

    def _step_alone(self, parameter: Tensor) -> None:
        groups: list[dict[str, Any]] = self._optimizer.param_groups
        self._optimizer.param_groups = [{**groups[self._group_of[parameter]], **self._alone[parameter]}]
        try:
            self._optimizer.step()
        finally:
            self._optimizer.param_groups = groups


def _each_alone(group: Mapping[str, Any]) -> Iterator[tuple[Tensor, dict[str, Any]]]:
    """Each parameter, and what its group says of parameters where it is the only one."""
    parameters, names, matrices = group["params"], group.get("names"), group.get("matrices")
    if not isinstance(names, list | tuple) or len(names) != len(parameters):
        yield from ((parameter, {"params": [parameter]}) for parameter in parameters)
        return
    for name, parameter in zip(names, parameters, strict=True):
        more = {"matrices": {name} & matrices} if isinstance(matrices, Set) else {}
        yield parameter, {"params": [parameter], "names": [name], **more}
