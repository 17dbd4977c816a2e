"""What has come to be refused, or to be read, since runs were begun: they go on with what they have.

What is refused as data are opened costs a run that goes on nothing: it was begun with them. Rows are bad samples each
time that they are drawn, so that a run notes whether it was begun with those rules (``kosmos.train.order.PIECES``). So
it is with rows that were bad samples, or not read right, and are read now (``kosmos.train.order.READS``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar

_opened = ContextVar("_opened", default=False)
_drawn = ContextVar("_drawn", default=False)
_read = ContextVar("_read", default=False)
_lacks: ContextVar[Collection[str]] = ContextVar("_lacks", default=())


@contextmanager
def opened_before(*, reads_more: bool = True, lacking: Collection[str] = ()) -> Iterator[None]:
    """Data that are opened are those of a run that was begun, and nothing that it may have learned is refused.

    Args:
        reads_more: False of a run that was begun before what ``read_before`` is about: which of its rows are documents
            may hang on it.
        lacking: later rules that it was begun before (``kosmos.train.order.LATER``).
    """
    token, rules = _opened.set(True), _lacks.set(lacking)
    try:
        with as_drawn(refuses_pieces=True, reads_more=reads_more):
            yield
    finally:
        _lacks.reset(rules)
        _opened.reset(token)


def is_opened_before() -> bool:
    return _opened.get()


def lacks(rule: str) -> bool:
    """Whether the data that are opened, or the rows that are drawn, are of a run that was begun before a rule
    (``kosmos.train.order.LATER``)."""
    return rule in _lacks.get()


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
def read_before() -> Iterator[None]:
    """Rows that are drawn, or looked at as data are opened, are those of a run to which some were bad samples, or not
    read right, that are now."""
    token = _read.set(True)
    try:
        yield
    finally:
        _read.reset(token)


def is_read_before() -> bool:
    return _read.get()


def rules_lacking() -> Collection[str]:
    """Of ``kosmos.train.order.LATER`` those that the rows at hand are read without."""
    return _lacks.get()


@contextmanager
def lacking_rules(rules: Collection[str]) -> Iterator[None]:
    """Rows that are drawn are those of a run that was begun before some of ``kosmos.train.order.LATER``."""
    token = _lacks.set(rules)
    try:
        yield
    finally:
        _lacks.reset(token)


def as_drawn(*, refuses_pieces: bool, reads_more: bool, lacking: Collection[str] = ()) -> ExitStack | nullcontext[None]:
    """The rules of a source for the rows that are drawn."""
    if refuses_pieces and reads_more and not lacking:  # as of most: this runs for every row
        return nullcontext()
    older = ExitStack()
    if lacking:
        older.enter_context(lacking_rules(lacking))
    if not refuses_pieces:
        older.enter_context(drawn_before())
    if not reads_more:
        older.enter_context(read_before())
    return older
