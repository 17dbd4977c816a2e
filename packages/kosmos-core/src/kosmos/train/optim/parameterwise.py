"""What our optimizers share: parameters that do not depend on each other, each with a number and a state of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from kosmos.errors import ConfigError
from kosmos.runtime.devices import has_triton
from kosmos.runtime.native import WORTH
from kosmos.train.optim.masters import Master
from kosmos.train.optim.operands import local
from kosmos.train.optim.states import check_master, restore_dtypes


class Parameterwise(torch.optim.Optimizer, ABC):
    """Base of an optimizer that updates parameters in ``_update``, or several at once in ``_update_all``."""

    compile = False
    """Whether its step is compiled code, which rounds in its own way: processes that hold the same weights agree."""
    uncompiled: str | None = None
    """Why it is not, where it would pay."""
    scales_as_it_reads = False
    """Whether ``_update_all`` multiplies gradients by ``_scale``: see ``scale_next``."""
    needs_others = False
    """Whether processes exchange something in a step: all of them then step the same parameters in one order."""

    def __init__(self, params: Any, defaults: dict[str, Any], *, master: Master, seed: int) -> None:
        """
        Args:
            params: parameters or groups of them.
            defaults: what a group takes that does not state it.
            master: what keeps updates that bf16 weights would round away; see ``masters``.
            seed: of what is rounded at random.

        Raises:
            ConfigError: ``master`` without bf16 weights.
        """
        self.numbers: dict[Tensor, int] = {}
        """Of parameters, in the order of their groups: their random bits depend on it."""
        self._scale = 1.0
        super().__init__(params, defaults)
        check_master(master, self.numbers)
        self.master, self.seed = master, seed

    @property
    def made_with(self) -> dict[str, Any]:
        """Options that the state depends on: it is of no use to an optimizer with others."""
        return {"master": self.master}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Its parameters are numbered on."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            self.numbers[parameter] = len(self.numbers)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step for every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        try:
            for group in self.param_groups:
                self._update_all([p for p in group["params"] if p.grad is not None], group)
        finally:
            self._scale = 1.0
        return loss

    def prepare(self) -> None:
        """Look up what the next step needs besides the values of gradients, which a GPU may still be computing.

        Nobody has to call this. Until the step a parameter may be given another gradient; weights and states stay where
        they are, unless ``load_state_dict`` replaces them.
        """

    def scale_next(self, factor: float) -> bool:
        """Multiply all gradients by ``factor`` as the next step reads them, which spares a pass over memory.

        Returns:
            Whether it will; if not, the caller scales them.
        """
        if self.scales_as_it_reads:
            self._scale = factor
        return self.scales_as_it_reads

    def _compiles(self, wanted: bool | Literal["auto"], those: Iterable[Tensor], binary: Callable[[], object]) -> bool:
        """Compile the step of parameters on a CPU, if it is wanted: now, where a run that cannot begin leaves nothing
        behind.

        Args:
            wanted: ``auto``: where it pays, with ``uncompiled`` said where it cannot be done.
            those: the parameters whose step it is.
            binary: compiles it.

        Returns:
            Whether it is compiled.

        Raises:
            ConfigError: it is wanted and cannot be compiled.
        """
        on_cpu = [p.numel() for p in those if local(p).device.type == "cpu"]  # of all ranks: all decide alike
        if not wanted or not on_cpu or (wanted == "auto" and sum(on_cpu) < WORTH):
            return False
        try:
            binary()
        except ConfigError as error:
            if wanted != "auto":
                raise
            self.uncompiled = str(error)
        return self.uncompiled is None

    def _has_kernel(self, parameter: Tensor) -> bool:
        """Whether a Triton kernel can take its step."""
        return local(parameter).is_cuda and has_triton()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state, in the dtypes that it has."""
        super().load_state_dict(state_dict)
        restore_dtypes(self, state_dict)

    def _update_all(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Take the step of the parameters of a group, which have gradients."""
        for parameter in parameters:
            self._update(parameter, group)

    @abstractmethod
    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Take the step of one parameter, which has a gradient."""
