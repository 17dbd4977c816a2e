"""A forward pass that another one interrupts wherever it can: what threads do to each other, at places that are known.

A run may compute several rows at once, each in a thread (``train.lanes_at_once``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from kosmos.testing.items import gradients
from kosmos.testing.promise import BrokenPromise


def undisturbed(module: nn.Module, forward: Callable[[], Tensor], other: Callable[[], Tensor], what: str) -> None:
    """
    Args:
        forward, other: two rows through the module.
        what: they give.

    Raises:
        BrokenPromise: ``forward`` or its gradients are not the same to the bit when ``other`` runs in between.
    """
    found = []
    for between in (lambda: None, other):
        out = _interrupted(module, forward, between)
        between()  # before the backward pass too
        found.append({what: out.detach(), **gradients(module, out, out.detach().cos())})
    plain, disturbed = found
    for name, value in plain.items():
        if not torch.equal(value, disturbed[name]):
            which = name if name == what else f"the gradient of {name}"
            raise BrokenPromise(f"another row in between changes {which}; keep nothing of a row on self")


def _interrupted(module: nn.Module, forward: Callable[[], Tensor], other: Callable[[], Any]) -> Tensor:
    """What ``forward`` gives while ``other`` runs, as a whole and in a thread of its own, before and after the modules
    that it calls."""
    this = threading.get_ident()

    def interrupt(*_: Any) -> None:
        if threading.get_ident() == this:
            pool.submit(other).result()

    # As a run's threads, it does not clear autocast's cache, which all threads share.
    with ThreadPoolExecutor(1, initializer=torch.autocast_increment_nesting) as pool:
        hooks = [register(interrupt) for m in _places(module)
                 for register in (m.register_forward_pre_hook, m.register_forward_hook)]  # fmt: skip
        try:
            return forward()
        finally:
            for hook in hooks:
                hook.remove()
            torch.clear_autocast_cache()


def _places(module: nn.Module) -> list[nn.Module]:
    """Its modules; of a list's elements that are made alike the first two and the last, where dozens run one code."""
    kept: set[nn.Module] = set()
    left_out: set[nn.Module] = set()
    for part in module.modules():
        if isinstance(part, nn.ModuleList | nn.Sequential):
            alike: dict[tuple[type, ...], list[nn.Module]] = {}
            for element in dict.fromkeys(part):
                alike.setdefault(tuple(type(m) for m in element.modules()), []).append(element)
            for elements in alike.values():
                for place, element in enumerate(elements):
                    chosen = kept if place < 2 or place == len(elements) - 1 else left_out
                    chosen.update(element.modules())
    return [m for m in module.modules() if m not in left_out or m in kept]
