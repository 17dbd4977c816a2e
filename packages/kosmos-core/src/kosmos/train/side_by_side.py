"""Several rows of a process at once, on a CPU: each in a thread of its own, with its share of the cores.

All threads that compute one row wait for each other at every operation. Threads with a row each wait for none.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from kosmos.config import RunConfig
from kosmos.errors import ConfigError, PluginError
from kosmos.model.omni import OmniModel
from kosmos.runtime.devices import seed_here
from kosmos.runtime.native import WORTH
from kosmos.train.passes import WHERE, joins_rows

T = TypeVar("T")
Gradients = tuple[Tensor | None, ...]


def check_at_once(config: RunConfig, model: OmniModel, device: torch.device, *, processes: int) -> None:
    """Whether rows may be computed at once as the run file has it, where they are to be.

    Args:
        processes: as of ``open_side_by_side``.

    Raises:
        ConfigError: an encoder takes one row at a time, or blocks are to be compiled for a CPU: each would take all of
            its cores.
    """
    if config.train.lanes_at_once == 1 or _elsewhere(device, processes):
        return
    if config.train.compile is True:
        raise ConfigError(
            f"{WHERE}: not with train.compile=true on a CPU, whose programs take all cores; leave one out"
        )
    if (title := _takes_one_row(model)) is not None:
        raise ConfigError(f"{WHERE}: {title} takes one row at a time, with these options; set {WHERE}=1")


def _takes_one_row(model: OmniModel) -> str | None:
    """What errors call an encoder that cannot run in several threads, if there is one."""
    streams = (cast(Any, stream) for stream in model.streams.values())
    return next((s.titles["encoder"] for s in streams if getattr(s.encoder, "takes_threads", True) is False), None)


def open_side_by_side(
    config: RunConfig, model: OmniModel, parameters: Sequence[nn.Parameter], device: torch.device, *, processes: int
) -> tuple[SideBySide | None, str | None]:
    """What computes rows at once, None where they are taken one after another; and what to tell the user, if anything.

    Args:
        processes: of the run. Several of them have a share of the rows each already.
    """
    wanted = config.train.lanes_at_once
    if joins_rows(device):
        return None, None
    if wanted == 1:
        return None, None if _elsewhere(device, processes) else _faster(config, model, parameters)
    if _elsewhere(device, processes):
        return (
            None,
            f"warning: {WHERE} is for GPUs and one process on a CPU; here each takes its lanes one after another",
        )
    limits = {"data.lanes": config.data.lanes, "PyTorch's threads": torch.get_num_threads()}
    least = min(limits, key=lambda name: limits[name])
    at_once = min(wanted, limits[least])
    told = None
    if at_once < wanted:
        way = f"only {at_once} rows are computed at once" if at_once > 1 else "rows are computed one after another"
        told = f"warning: {WHERE}={wanted}: {way}, {least} being {at_once}; raise that, or lower {WHERE}"
    return SideBySide(parameters, at_once) if at_once > 1 else None, told


def _faster(config: RunConfig, model: OmniModel, parameters: Sequence[nn.Parameter]) -> str | None:
    """What to tell where rows could be computed at once and are large enough for it to pay."""
    at_once = math.gcd(config.data.lanes, torch.get_num_threads())
    refused = config.train.compile is True or _takes_one_row(model) is not None
    if at_once == 1 or refused or sum(p.numel() for p in parameters) < WORTH:
        return None
    return f"rows are computed one after another: {WHERE}={at_once} is faster, and takes more memory (not with dropout)"


def _elsewhere(device: torch.device, processes: int) -> bool:
    return device.type != "cpu" or processes > 1


class SideBySide:
    """Gradients of several rows at once, added up in the order of the rows."""

    def __init__(self, parameters: Sequence[nn.Parameter], at_once: int) -> None:
        """
        Args:
            parameters: those that are trained.
            at_once: rows. Each has so many of PyTorch's threads that all together have no more than before.
        """
        self.parameters, self.threads = list(parameters), torch.get_num_threads()
        self.at_once, self.each = at_once, self.threads // at_once
        # Autocast's cache of cast weights is one for all threads, and who leaves autocast would clear it: never here.
        self.pool = ThreadPoolExecutor(at_once, "row", initializer=torch.autocast_increment_nesting)

    def backward(
        self,
        rows: Sequence[Callable[[], tuple[Tensor, T]]],
        *,
        seed: int,
        waits_for: Callable[[int], None] = lambda row: None,
        apart: bool = False,
    ) -> list[T]:
        """Add the gradients of rows.

        A row's gradients depend on nothing but the row and ``each``, and their sum on the order of the rows: as if one
        row after another had been computed by so many threads.

        Args:
            rows: the forward pass of each: its loss, and what is wanted beside it.
            seed: of PyTorch's generator from here on, whatever came before.
            waits_for: told the number of each row that has to be done next.
            apart: one at a time all the same, for the sake of what looks at all that this process computes.

        Returns:
            What is wanted of each.

        Raises:
            PluginError: a part failed; with what to do if it was for rows that are computed at once.
            ConfigError: random numbers were drawn, which are in no order between threads.
            Exception: what the first of the rows raised that failed. Those under way are done by then, no other begins.
        """
        seed_here(seed, torch.device("cpu"))
        before = torch.default_generator.get_state()
        # One more than are computed, so that no thread waits, and few gradients for their turn.
        most = 1 if apart else self.at_once + 1
        running: deque[Future[tuple[Gradients, T]]] = deque()
        results: list[T] = []
        try:
            torch.set_num_threads(self.each)
            for row in rows:
                running.append(self.pool.submit(self._row, row))
                if len(running) == most:
                    results.append(self._take(running, waits_for, len(results)))
            while running:
                results.append(self._take(running, waits_for, len(results)))
        finally:
            wait([row for row in running if not row.cancel()])
            torch.clear_autocast_cache()
            torch.set_num_threads(self.threads)
        if not torch.equal(before, torch.default_generator.get_state()):
            raise ConfigError(
                f"{WHERE}: dropout, or a layer of an encoder, drew random numbers in this step, and threads would draw "
                f"them in another order each time; set {WHERE}=1, with --resume too, or dropout to 0"
            )
        return results

    def _row(self, forward: Callable[[], tuple[Tensor, T]]) -> tuple[Gradients, T]:
        torch.set_num_threads(self.each)  # of this thread: each has a number of its own
        loss, wanted = forward()
        return torch.autograd.grad(loss, self.parameters, allow_unused=True), wanted

    def _take(self, running: deque[Future[tuple[Gradients, T]]], waits_for: Callable[[int], None], number: int) -> T:
        waits_for(number)
        try:
            gradients, wanted = running.popleft().result()
        except PluginError as error:
            raise PluginError(
                f"{error}. Rows are computed at once: an encoder that keeps something of its row on self says "
                f"takes_threads = False; {WHERE}=1 computes them one after another"
            ) from error
        self._add(gradients)
        return wanted

    def _add(self, gradients: Gradients) -> None:
        sums, more = [], []
        taken: set[int] = set()
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is None:
                continue
            if parameter.grad is None:
                parameter.grad = _its_own(gradient, parameter, taken)
            else:
                sums.append(parameter.grad)
                more.append(gradient)
        if sums:
            torch._foreach_add_(sums, more)


def _its_own(gradient: Tensor, parameter: nn.Parameter, taken: set[int]) -> Tensor:
    """The gradient, laid out as its parameter, in memory that it shares with no other.

    Parameters that are added to each other have one gradient, and those that are joined have parts of one.
    """
    memory = gradient.untyped_storage()
    whole = memory.nbytes() == gradient.numel() * gradient.element_size()
    if whole and gradient.stride() == parameter.stride() and memory.data_ptr() not in taken:
        taken.add(memory.data_ptr())
        return gradient
    return torch.empty_like(parameter, requires_grad=False).copy_(gradient)
