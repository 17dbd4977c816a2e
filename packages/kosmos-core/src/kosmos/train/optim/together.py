"""Parameters on a GPU that take their steps together: what stays from step to step is looked up once.

The GPU waits while a step is prepared, because the norm of all gradients was waited for just before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from kosmos.train.optim.kernels import ALIGNED, Kind, Table, kind_of
from kosmos.train.optim.noise import noise_keys
from kosmos.train.optim.operands import Operands, Step, local
from kosmos.train.optim.states import first_place, put_back


class Together:
    """The tables of some parameters. It keeps none of their gradients."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        states: Mapping[Tensor, Mapping[str, Any]],
        rows: Sequence[Operands],
        numbers: Sequence[int],
    ) -> None:
        """
        Args:
            states: of the optimizer, made already.
            rows: what the parameters consist of now.
            numbers: of the parameters, on which their random bits depend.
        """
        self._parameters = list(parameters)
        self._numbers = np.array(numbers, dtype=np.uint64)
        self._starts = np.array([first_place(p) for p in parameters], dtype=np.uint64)
        # Weakly: a state that was replaced, as by a checkpoint, is not to stay in memory until the next step.
        self._kept = [(local(p).data_ptr(), [ref(t) for t in _tensors(states[p])]) for p in parameters]
        assert all(local(t).is_contiguous() for p in parameters for t in _tensors(states[p])), "states are contiguous"
        self._gradients = [(whole.gradient.dtype, _is_aligned(whole.gradient)) for whole in rows]
        pairs = zip(parameters, rows, strict=True)
        self._copies = [(p, whole.weight) for p, whole in pairs if not local(p).is_contiguous()]
        members: dict[tuple[Kind, torch.device], list[int]] = {}
        for number, whole in enumerate(rows):
            if len(whole.weight):  # a shard may hold no row
                members.setdefault((kind_of(whole), whole.weight.device), []).append(number)
        self._tables = [(Table(kind, [rows[i] for i in own]), own) for (kind, _), own in members.items()]

    def still_holds(self, states: Mapping[Tensor, Mapping[str, Any]], gradients: Sequence[Tensor]) -> bool:
        """Whether weights, states and the form of gradients are what they were."""
        for parameter, (pointer, tensors), gradient, (dtype, aligned) in zip(
            self._parameters, self._kept, gradients, self._gradients, strict=True
        ):
            own, now = local(parameter), _tensors(states[parameter])
            if own.data_ptr() != pointer or not own.is_contiguous() or gradient.dtype is not dtype:
                return False
            if _is_aligned(gradient) != aligned or len(tensors) != len(now):
                return False
            if any(one() is not other for one, other in zip(tensors, now, strict=True)):
                return False
        return True

    def lion(self, gradients: Sequence[Tensor], steps: Sequence[int], seed: int, step: Step) -> None:
        """One step of Lion for each.

        Args:
            gradients: contiguous, of this process.
            steps: of each parameter, counted from 1.
            seed: of the random bits.
        """
        pointers = [gradient.data_ptr() for gradient in gradients]
        keys = noise_keys(seed, self._numbers, np.array(steps, dtype=np.uint64), self._starts)
        for table, own in self._tables:
            table.lion([pointers[i] for i in own], keys[own], step)
        for parameter, weight in self._copies:
            put_back(weight, parameter)


def _is_aligned(tensor: Tensor) -> bool:
    return tensor.data_ptr() % ALIGNED == 0


def _tensors(state: Mapping[str, Any]) -> tuple[Tensor, ...]:
    return tuple(value for value in state.values() if isinstance(value, Tensor))
