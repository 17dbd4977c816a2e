"""Several threads write and hash the files of a checkpoint: what takes long of it leaves the interpreter free."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def for_each(act: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """What ``act`` gives for each item, in their order. This thread is one of ``threads``.

    No executor: those take nothing more once the interpreter ends, when a checkpoint that was ordered before is still
    written.

    Raises:
        BaseException: what ``act`` raised first, or this thread was interrupted by; nothing is begun after it.
    """
    left = deque(range(len(items)))
    found: dict[int, Result] = {}
    errors: list[BaseException] = []

    def work() -> None:
        while not errors:
            try:
                at = left.popleft()
            except IndexError:
                return
            try:
                found[at] = act(items[at])
            except BaseException as error:
                errors.append(error)

    helpers = [threading.Thread(target=work) for _ in range(min(threads, len(items)) - 1)]
    started: list[threading.Thread] = []
    try:
        for helper in helpers:
            with suppress(RuntimeError):  # the system gives no further thread: those that there are do the work
                helper.start()
                started.append(helper)
        work()
        _join(started)
    except BaseException as error:  # an interrupt, at which the others begin nothing more
        errors.append(error)
        _join(started)
    if errors:
        raise errors[0]
    return [found[at] for at in range(len(items))]


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()
