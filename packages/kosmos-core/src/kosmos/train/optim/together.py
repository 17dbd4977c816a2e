"""Parameters on a GPU that take their steps together: what stays from step to step is looked up once.

The CPU has this to do for hundreds of parameters at every step, and a GPU that is not busy waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt
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
        tensors = [(p, key, t) for p in parameters for key, t in states[p].items() if isinstance(t, Tensor)]
        assert all(local(tensor).is_contiguous() for _, _, tensor in tensors), "states are contiguous"
        self._places, self._kept = [(p, key) for p, key, _ in tensors], [ref(tensor) for _, _, tensor in tensors]
        self._weights = [local(p).data_ptr() for p in parameters]
        self._types = [whole.gradient.dtype for whole in rows]
        self._aligned = _are_aligned([whole.gradient.data_ptr() for whole in rows])
        pairs = zip(parameters, rows, strict=True)
        self._copies = [(p, whole.weight) for p, whole in pairs if not local(p).is_contiguous()]
        members: dict[tuple[Kind, torch.device], list[int]] = {}
        for number, whole in enumerate(rows):
            if len(whole.weight):  # a shard may hold no row
                members.setdefault((kind_of(whole), whole.weight.device), []).append(number)
        self._tables = [(Table(kind, [rows[i] for i in own]), own) for (kind, _), own in members.items()]

    def still_holds(
        self, states: Mapping[Tensor, Mapping[str, Any]], gradients: Sequence[Tensor], pointers: Sequence[int]
    ) -> bool:
        """Whether weights, states and the form of gradients, which are at ``pointers``, are what they were."""
        own = [local(parameter) for parameter in self._parameters]
        # A state that was dropped is no tensor, and not None: that is what a reference to a tensor gone gives.
        now = (states[parameter].get(key, self) for parameter, key in self._places)
        return (
            [weight.data_ptr() for weight in own] == self._weights
            and all(map(Tensor.is_contiguous, own))
            and [gradient.dtype for gradient in gradients] == self._types
            and bool((_are_aligned(pointers) == self._aligned).all())
            and all(map(is_, now, (kept() for kept in self._kept)))
        )

    def lion(self, pointers: Sequence[int], steps: Sequence[int], seed: int, step: Step) -> None:
        """One step of Lion for each.

        Args:
            pointers: of gradients of this process, which are contiguous.
            steps: of each parameter, counted from 1; all 0 where nothing is rounded at random.
            seed: of the random bits.
        """
        keys = noise_keys(seed, self._numbers, np.array(steps, dtype=np.uint64), self._starts) if any(steps) else None
        for table, own in self._tables:
            table.lion([pointers[i] for i in own], None if keys is None else keys[own], step)
        for parameter, weight in self._copies:
            put_back(weight, parameter)


def _are_aligned(pointers: Sequence[int]) -> npt.NDArray[np.bool_]:
    aligned: npt.NDArray[np.bool_] = np.array(pointers, dtype=np.int64) % ALIGNED == 0
    return aligned
