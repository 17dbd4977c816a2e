"""Several rows of a process at once, on a CPU: each in a thread of its own, with its share of the cores.

All threads that compute one row wait for each other at every operation. Threads with a row each wait for none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import Tensor, nn

from kosmos.config import RunConfig
from kosmos.errors import ConfigError

T = TypeVar("T")
Gradients = tuple[Tensor | None, ...]
WHERE = "train.lanes_at_once"


def check_at_once(config: RunConfig, device: torch.device) -> None:
    """Whether rows may be computed at once as the run file has it.

    Raises:
        ConfigError: blocks are to be compiled for a CPU. Each would take all of its cores.
    """
    if config.train.lanes_at_once > 1 and config.train.compile is True and device.type == "cpu":
        raise ConfigError(
            f"{WHERE}: not with train.compile=true on a CPU, whose programs take all cores; leave one out"
        )


def open_side_by_side(
    config: RunConfig, parameters: Sequence[nn.Parameter], device: torch.device, *, processes: int
) -> tuple[SideBySide | None, str | None]:
    """What computes rows at once, None where they are taken one after another; and what to tell the user, if anything.

    Args:
        processes: of the run. Several of them have a share of the rows each already.
    """
    wanted = config.train.lanes_at_once
    if wanted == 1:
        return None, None
    if device.type != "cpu" or processes > 1:
        return None, f"{WHERE} is for one process on a CPU; here each process takes its lanes one after another"
    limits = {"data.lanes": config.data.lanes, "the threads of PyTorch": torch.get_num_threads()}
    least = min(limits, key=lambda name: limits[name])
    at_once = min(wanted, limits[least])
    told = f"{WHERE}: {wanted} are wanted at once, {least} are {at_once}" if at_once < wanted else None
    return SideBySide(parameters, at_once) if at_once > 1 else None, told


class SideBySide:
    """Gradients of several rows at once, added up in the order of the rows."""

    def __init__(self, parameters: Sequence[nn.Parameter], at_once: int) -> None:
        """
        Args:
            parameters: those that are trained.
            at_once: rows. Each has so many of PyTorch's threads that all together have no more than before.
        """
        self.parameters, self.threads = list(parameters), torch.get_num_threads()
        self.each = self.threads // at_once
        self.pool = ThreadPoolExecutor(at_once, thread_name_prefix="row")

    def backward(self, rows: Sequence[Callable[[], tuple[Tensor, T]]], *, apart: bool = False) -> list[T]:
        """Add the gradients of rows.

        A row's gradients depend on nothing but the row and ``each``, and their sum on the order of the rows: as if one
        row after another had been computed by so many threads.

        Args:
            rows: the forward pass of each: its loss, and what is wanted beside it.
            apart: one at a time all the same, for the sake of what looks at all that this process computes.

        Returns:
            What is wanted of each.

        Raises:
            ConfigError: random numbers were drawn, which are in no order between threads.
            Exception: what the first of the rows raised that failed; all others are done by then.
        """
        before = torch.default_generator.get_state()
        running: deque[Future[tuple[Gradients, T]]] = deque()
        results = []
        try:
            torch.set_num_threads(self.each)
            for row in rows:
                running.append(self.pool.submit(self._row, row))
                if apart:
                    wait(running)
            while running:
                gradients, wanted = running.popleft().result()
                self._add(gradients)
                results.append(wanted)
        finally:
            wait(running)
            torch.set_num_threads(self.threads)
        if not torch.equal(before, torch.default_generator.get_state()):
            raise ConfigError(
                f"{WHERE}: dropout, or a layer of an encoder, drew random numbers in this step, and threads would draw "
                f"them in another order each time; set {WHERE}=1, or dropout to 0"
            )
        return results

    def _row(self, forward: Callable[[], tuple[Tensor, T]]) -> tuple[Gradients, T]:
        torch.set_num_threads(self.each)  # of this thread: each has a number of its own
        loss, wanted = forward()
        return torch.autograd.grad(loss, self.parameters, allow_unused=True), wanted

    def _add(self, gradients: Gradients) -> None:
        """In the order that ``backward`` would: one row after another."""
        sums, more = [], []
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is None:
                continue
            if parameter.grad is None:
                parameter.grad = _laid_out(gradient, parameter)
            else:
                sums.append(parameter.grad)
                more.append(gradient)
        if sums:
            torch._foreach_add_(sums, more)


def _laid_out(gradient: Tensor, like: Tensor) -> Tensor:
    """As ``backward`` lays gradients out, in memory of their own, which optimizers rely on."""
    if gradient.stride() == like.stride() and gradient.is_contiguous() == like.is_contiguous():
        return gradient
    return torch.empty_like(like).copy_(gradient)
