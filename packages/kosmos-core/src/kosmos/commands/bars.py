"""How far a command is that takes long, on standard error where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str, *, show: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar where somebody sees it; what moves it on, by how much of how many in all."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (show and console.is_terminal)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda count, total: bar.update(task, advance=count, total=total)
