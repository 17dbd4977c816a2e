"""Media that rows name and that cannot be had, which may be left out of their documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar

from kosmos.errors import SampleError

_lost: ContextVar[list[SampleError] | None] = ContextVar("_lost", default=None)


class LostMediumError(SampleError):
    """A medium is missing or empty: what was not to be named at all, such as an address, is another error."""

    may_be_left_out: ClassVar[bool] = True


@contextmanager
def leaving_out(*, are: bool) -> Iterator[list[SampleError]]:
    """Media that are lost are left out, where they ``are``; what was lost of each stands in the list that is given."""
    found: list[SampleError] = []
    token = _lost.set(found if are else None)
    try:
        yield found
    finally:
        _lost.reset(token)


def is_left_out(error: SampleError) -> bool:
    """Whether the medium that an error is about is left out, which is noted then."""
    found = _lost.get()
    if found is None or not (isinstance(error, LostMediumError) and error.may_be_left_out):
        return False
    found.append(error)
    return True
