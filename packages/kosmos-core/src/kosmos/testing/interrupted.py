"""A forward pass that another one interrupts wherever it can: what threads do to each other, at places that are known.

A run may compute several rows at once, each in a thread (``train.lanes_at_once``).
"""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

import hypothesis
import torch
from torch import Tensor, nn

from kosmos.errors import KosmosError, cause, own_line
from kosmos.testing.items import gradients
from kosmos.testing.promise import BrokenPromise

STORES = ("STORE_ATTR", "STORE_GLOBAL", "STORE_SUBSCR")
"""What puts a value where another thread may put its own."""
KEEP = "keep nothing of a row on self, or say takes_threads = False if it is an encoder"
LOCKED_S = 5.0
"""After which it goes on beside the other row, which may wait for a lock that it holds."""
_OTHERS = tuple(f"{os.path.dirname(file)}{os.sep}" for file in (str(torch.__file__), hypothesis.__file__, __file__))


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
        try:
            out = _interrupted(module, forward, between)
            between()  # before the backward pass too
            found.append({what: out.detach(), **gradients(module, out, out.detach().cos())})
        except (KosmosError, BrokenPromise):
            raise
        except Exception as error:  # a seam: the plugin's own code
            if not found:  # it does so undisturbed
                raise
            raised = f"{cause(error)}{own_line(error, type(module).__module__)}"
            raise BrokenPromise(f"another row in between makes it raise {raised}; {KEEP}") from error
    plain, disturbed = found
    for name, value in plain.items():
        if value.shape != disturbed[name].shape or not torch.equal(value, disturbed[name]):
            which = name if name == what else f"the gradient of {name}"
            raise BrokenPromise(f"another row in between changes {which}; {KEEP}")


def _interrupted(module: nn.Module, forward: Callable[[], Tensor], other: Callable[[], Any]) -> Tensor:
    """What ``forward`` gives while ``other`` runs, as a whole and in a thread of its own, before and after the modules
    that it calls, and where it has put something on an object."""
    this = threading.get_ident()
    busy = False

    def interrupt(*_: Any, within_s: float | None = None) -> None:
        nonlocal busy
        if threading.get_ident() != this or busy:
            return
        busy = True
        try:
            running = pool.submit(other)
            if wait([running], within_s).done:
                running.result()
        finally:
            busy = False

    # As a run's threads, it does not clear autocast's cache, which all threads share.
    with ThreadPoolExecutor(1, initializer=torch.autocast_increment_nesting) as pool:
        hooks = [register(interrupt) for m in _places(module)
                 for register in (m.register_forward_pre_hook, m.register_forward_hook)]  # fmt: skip
        try:
            with _after_stores(partial(interrupt, within_s=LOCKED_S)):
                return forward()
        finally:
            for hook in hooks:
                hook.remove()
            torch.clear_autocast_cache()


@contextmanager
def _after_stores(interrupt: Callable[[], Any]) -> Iterator[None]:
    """Call ``interrupt`` when code that is neither PyTorch's nor Python's has stored something, once at each place."""
    seen: set[tuple[CodeType, int]] = set()

    def called(frame: FrameType, event: str, given: Any) -> Any:
        if not _behind_stores(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return step

    def step(frame: FrameType, event: str, given: Any) -> Any:
        place = frame.f_code, frame.f_lasti
        if event == "opcode" and place not in seen and frame.f_lasti in _behind_stores(frame.f_code):
            seen.add(place)
            interrupt()
        return step

    before = sys.gettrace()  # of this thread alone
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)


@cache
def _behind_stores(code: CodeType) -> frozenset[int]:
    """Where the instructions stand that follow a store. What is only being made is nobody else's yet."""
    library = code.co_filename.startswith(sysconfig.get_path("stdlib")) and "-packages" not in code.co_filename
    if (
        library
        or code.co_filename.startswith((*_OTHERS, "<frozen"))
        or code.co_name in ("__init__", "__post_init__", "<module>")
    ):
        return frozenset()
    instructions = list(dis.get_instructions(code))
    behind = pairwise(instructions)
    return frozenset(after.offset for one, after in behind if one.opname in STORES)


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
