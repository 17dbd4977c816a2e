"""Calls into code that is not ours: processors and sources of plugins. What they raise concerns one sample."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from kosmos.errors import DataError, KosmosError, NoSuchPart, SampleError, own_line


class calling:  # noqa: N801  as ``contextlib.suppress``; a generator would cost several times as much at every sample
    """Around a call of a plugin: whatever it raises becomes an error of the sample at hand.

    Raises:
        SampleError: it raised an exception that is neither ours nor a lack of memory, both of which pass; or it made a
            document of what none is made of.
    """

    __slots__ = ("giver", "method")

    def __init__(self, giver: object, method: str) -> None:
        """
        Args:
            giver: the object of the plugin.
            method: which of its methods is called.
        """
        self.giver, self.method = giver, method

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, KosmosError | MemoryError) and not isinstance(error, NoSuchPart)):
            return
        if isinstance(error, Exception | SystemExit):
            where = own_line(error, type(self.giver).__module__)
            raise SampleError(f"{called(self.giver, self.method)} raised {first_line(error)}{where}") from error


def panicked(error: BaseException) -> bool:
    """Whether code in Rust found itself wrong, which Python is told by an exception that is none of ``Exception``."""
    return type(error).__name__ == "PanicException"


def called(giver: object, method: str) -> str:
    """What messages call a method of a plugin, such as ``ImageProcessor.decode``."""
    return f"{type(giver).__name__}.{method}"


def said(source: Any, method: str) -> Any:
    """What a method says that a source need not have; None where it has none.

    Raises:
        DataError: it raised an exception that is neither ours nor a lack of memory, both of which pass.
    """
    ask = getattr(source, method, None)
    if not callable(ask):
        return None
    try:
        return ask()
    except (KosmosError, MemoryError):
        raise
    except Exception as error:
        raise DataError(f"{source.name}: {called(source, method)} raised {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The kind and first line of other code's error; all lines where the first ends in a colon, and so says little."""
    first, *more = (str(error).strip() or "no reason given").splitlines()
    said = " ".join([first, *more]) if first.rstrip().endswith(":") else first
    return f"{type(error).__name__}: {' '.join(said.split())}"[:300]
