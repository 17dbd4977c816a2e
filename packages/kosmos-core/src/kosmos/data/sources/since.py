"""What has come to be refused since runs were begun that learned it: they go on with what they have.

What is refused as data are opened costs a run that goes on nothing: it was begun with them. Rows are bad samples each
time that they are drawn, so that a run notes whether it was begun with those rules (``kosmos.train.order.PIECES``). It
notes likewise what has come to be read since (``TURNS``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_opened = ContextVar("_opened", default=False)
_drawn = ContextVar("_drawn", default=False)
_turns_read = ContextVar("_turns_read", default=True)


@contextmanager
def opened_before() -> Iterator[None]:
    """Data that are opened are those of a run that was begun, and nothing that it may have learned is refused."""
    token = _opened.set(True)
    try:
        yield
    finally:
        _opened.reset(token)


def is_opened_before() -> bool:
    return _opened.get()


@contextmanager
def drawn_before() -> Iterator[None]:
    """Rows that are drawn are those of a run that may have learned of whole media what is of a piece of them."""
    token = _drawn.set(True)
    try:
        yield
    finally:
        _drawn.reset(token)


def is_drawn_before() -> bool:
    return _drawn.get()


@contextmanager
def turns_not_read() -> Iterator[None]:
    """Rows that are drawn are those of a run that has learned nothing of media that turns name beside their content."""
    token = _turns_read.set(False)
    try:
        yield
    finally:
        _turns_read.reset(token)


def are_turns_read() -> bool:
    """Whether media that turns of chats name beside their content are read."""
    return _turns_read.get()
