"""Ctrl-C while a command starts: it is kept in mind, for a library may swallow the KeyboardInterrupt or fail of it.

torch, numpy and others import modules from C and drop what these raise; what was half imported then fails with any
error, much later, or the command goes on as though nobody had asked it to stop.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from typing import Any

_came: list[str] = []


def came() -> str | None:
    """The name of the signal that has asked this command to end before it could stop in good order, if one has."""
    return _came[0] if _came else None


def keep_in_mind(signals: Iterable[signal.Signals]) -> Callable[[], None]:
    """Raise KeyboardInterrupt, with its name, for those of these signals that nobody else handles, and remember it.

    Returns:
        What puts the old handlers back, and forgets.
    """

    def interrupt(number: int, frame: Any) -> None:
        name = signal.Signals(number).name
        _came.append(name)
        raise KeyboardInterrupt(name)

    usual = (signal.SIG_DFL, signal.default_int_handler)
    old = {number: handler for number in signals if (handler := signal.getsignal(number)) in usual}
    for number in old:
        signal.signal(number, interrupt)

    def put_back() -> None:
        for number, handler in old.items():
            signal.signal(number, handler)
        _came.clear()

    return put_back


def answered() -> None:
    """What came was heard, and the command goes on: what goes wrong later has another cause."""
    _came.clear()
