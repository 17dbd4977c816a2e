"""Standard output belongs to the command: what else the process writes there goes to standard error.

No torch here.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO

_is_command = False


def is_command() -> None:
    """This process is the ``kosmos`` command, and not a program that calls its functions: its descriptors are ours."""
    global _is_command
    _is_command = True


@contextmanager
def aside() -> Iterator[TextIO]:
    """Around code of plugins: what it prints goes to standard error. Gives the command's own standard output.

    In the ``kosmos`` command descriptor 1 is standard error from here on until the process ends, also for C libraries,
    whose buffers are written last, and for processes that are started. A terminal keeps its descriptor: no program
    reads there, and Python lets a person edit a line on descriptor 1 alone.
    """
    own = _moved()
    with redirect_stdout(sys.stderr):
        yield own


def _moved() -> TextIO:
    """Standard output, on a descriptor of its own where descriptor 1 is ours to give away."""
    old = sys.stdout
    if not (_is_command and isinstance(old, io.TextIOWrapper) and old is sys.__stdout__ and old.fileno() == 1):
        return old
    if old.isatty():
        return old
    old.flush()
    try:
        descriptor = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # closed: nothing can be written there
        return old
    buffering = 0 if old.write_through else -1  # PYTHONUNBUFFERED
    binary: Any = open(descriptor, "wb", buffering=buffering)  # noqa: SIM115  until the process ends
    new = io.TextIOWrapper(
        binary, old.encoding, old.errors, line_buffering=old.line_buffering, write_through=old.write_through
    )
    sys.stdout = new
    sys.__stdout__ = new  # type: ignore[misc]
    return new


def written(stream: TextIO | None) -> None:
    """Write what was printed to a stream of this process and is not written yet.

    Raises:
        OSError: that cannot be. The rest is dropped, so that the end of the process does not try again.
    """
    if stream is None or stream.closed:
        return
    try:
        stream.flush()
    except OSError:
        with suppress(OSError), open(os.devnull, "wb") as nowhere:  # no descriptor: it is a program's own stream
            os.dup2(nowhere.fileno(), stream.fileno())
        raise
