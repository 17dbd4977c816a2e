"""Calls into code that is not ours: processors and sources of plugins. What they raise concerns one sample."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kosmos.errors import KosmosError, SampleError


@contextmanager
def calling(who: str) -> Iterator[None]:
    """Around a call of a plugin: whatever it raises becomes an error of the sample at hand.

    Args:
        who: what is called, such as ``ImageProcessor.decode``.

    Raises:
        SampleError: it raised an exception that is neither ours nor a lack of memory, both of which pass.
    """
    try:
        yield
    except (KosmosError, MemoryError):
        raise
    except Exception as error:
        raise SampleError(f"{who} raised {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The kind and first line of other code's error."""
    said = (str(error).strip() or "no reason given").splitlines()[0]
    return f"{type(error).__name__}: {' '.join(said.split())}"[:300]
