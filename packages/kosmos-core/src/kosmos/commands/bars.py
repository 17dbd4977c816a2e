"""How far a command is that takes long, on standard error: a bar in a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 10.0
"""Seconds between lines where there is no terminal, and before the first."""
Advance = Callable[[int, int], None]
"""Told by how much more of how many in all a command has come."""


@contextmanager
def progress(what: str, *, unit: str = "steps") -> Iterator[Advance]:
    """What moves it on.

    Args:
        what: is done, such as ``decoding``.
        unit: what is counted, for lines.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(what, unit).advance
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda count, total: bar.update(task, advance=count, total=total)


class _Lines:
    def __init__(self, what: str, unit: str) -> None:
        self.what, self.unit = what, unit
        self.done, self.said_at = 0, time.monotonic()

    def advance(self, count: int, total: int) -> None:
        self.done += count
        if (now := time.monotonic()) - self.said_at >= EVERY_S:
            self.said_at = now
            print(f"{self.what}: {self.done:,} of {total:,} {self.unit}", file=sys.stderr, flush=True)
