"""Python's garbage collector, out of the way while a command starts.

What imports make is no garbage, and it would be looked through again and again: 0.8 of the 5.4 seconds in which
``kosmos train`` comes to its first step (``benchmarks/startup.py``). Once more as the process ends, if it was not left
out: 1 s of the 3.6 s of ``kosmos chat`` that is given no run.
"""

from __future__ import annotations

import gc

_paused: list[bool] = []


def pause() -> None:
    """Collect nothing until ``go_on``. For a command in a process of its own."""
    if gc.isenabled():
        gc.disable()
        _paused.append(True)


def imported() -> None:
    """Never look through what there is by now, if ``pause`` was called: imports, before anything else is made."""
    if _paused:
        gc.freeze()


def go_on() -> None:
    """Collect what was left behind since ``imported``, such as weights in a cycle, and as ever from here on."""
    if _paused:
        _paused.clear()
        gc.collect()
        gc.enable()
