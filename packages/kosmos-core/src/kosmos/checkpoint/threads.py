"""Several threads write and hash the files of a checkpoint: what takes long of it leaves the interpreter free."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def for_each(act: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """What ``act`` gives for each item, in their order. This thread is one of ``threads``.

    No executor: those take nothing more once the interpreter ends, when a checkpoint that was ordered before is still
    written.

    Raises:
        Exception: what ``act`` raised first; nothing is begun after it.
    """
    left = deque(range(len(items)))
    found: dict[int, Result] = {}
    errors: list[Exception] = []

    def work() -> None:
        while not errors:
            try:
                at = left.popleft()
            except IndexError:
                return
            try:
                found[at] = act(items[at])
            except Exception as error:
                errors.append(error)

    helpers = [threading.Thread(target=work) for _ in range(min(threads, len(items)) - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
    return [found[at] for at in range(len(items))]
