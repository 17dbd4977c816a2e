"""What a data worker is told at its start: the feed, and of its lanes what is its own and where they are.

The feed is written once to memory that all workers map, and its large arrays, such as the places of a hundred million
rows, are used where they lie. Sent to each by itself they would be in memory as often as there are workers.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from kosmos.data.foreign import first_line
from kosmos.data.lane import Feed
from kosmos.data.shared_memory import aligned, open_memory
from kosmos.errors import DataError, PluginError

LARGE_BYTES = 1 << 16
"""From which on an array lies beside what is pickled."""


class Place(NamedTuple):
    """Where a lane is."""

    turn: int
    """Turns taken since the feeder was opened."""
    state: Any


class Share(NamedTuple):
    """The turns of a lane that are a worker's own: one in ``of``, which leaves the remainder ``own``."""

    own: int
    of: int

    def has(self, turn: int) -> bool:
        return turn % self.of == self.own


class SharedFeed:
    """A feed in memory for the workers that are started while this is open.

    Raises:
        PluginError: a processor, a source or another part cannot be pickled; it is named.
        DataError: the system gives no memory.
    """

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        large: list[pickle.PickleBuffer] = []
        head = _pickled(feed, large)
        parts = [np.frombuffer(head, np.uint8), *(np.frombuffer(buffer.raw(), np.uint8) for buffer in large)]
        *begins, nbytes = accumulate((aligned(part.nbytes) for part in parts), initial=0)
        self.places = [(begin, part.nbytes) for begin, part in zip(begins, parts, strict=True)]
        """Begin and bytes of what is pickled, and of each array in the order in which it asks for them."""
        try:
            with ExitStack() as unless_written:
                self.fd = open_memory("kosmos-feed", nbytes)
                unless_written.callback(os.close, self.fd)
                for begin, part in zip(begins, parts, strict=True):
                    _write(self.fd, begin, part.data)
                unless_written.pop_all()
        except OSError as error:
            raise DataError(f"data workers cannot be told what to read ({first_line(error)})") from error

    def __enter__(self) -> SharedFeed:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.fd)


def _write(fd: int, begin: int, part: memoryview) -> None:
    """Through the system, which says where it has no room; memory that is mapped would end the process."""
    while part:
        written = os.pwrite(fd, part[: 1 << 30], begin)
        begin, part = begin + written, part[written:]


def received(fd: int, places: Sequence[tuple[int, int]]) -> Any:
    """The feed of a ``SharedFeed``. What is written to its arrays is seen by no other process. Closes ``fd``."""
    memory = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_COPY))
    os.close(fd)
    head, *large = (memory[begin : begin + nbytes] for begin, nbytes in places)
    return pickle.loads(head, buffers=large)  # noqa: S301  of the process that started this one


def _pickled(feed: Feed, large: list[pickle.PickleBuffer]) -> bytes:
    """The feed without its large arrays, which are added to ``large``."""

    def stays(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < LARGE_BYTES:
            return True
        large.append(buffer)
        return False

    try:
        return pickle.dumps(feed, protocol=5, buffer_callback=stays)
    except MemoryError:
        raise
    except Exception as error:  # whatever a plugin's object raises
        raise PluginError(
            f"{_culprit(feed)} cannot be pickled, and so not be sent to a data worker ({first_line(error)}); "
            "data.workers=0 avoids it"
        ) from error


def _culprit(feed: Feed) -> str:
    """The first part of a feed that cannot be pickled by itself."""
    for what, part in _parts(feed):
        try:
            pickle.dumps(part, pickle.HIGHEST_PROTOCOL)
        except Exception:
            return f"{what} ({type(part).__module__}.{type(part).__qualname__})"
    return "the order of samples with its sources"


def _parts(feed: Feed) -> Iterator[tuple[str, Any]]:
    for modality, route in feed.planner.routes.items():
        yield f"the processor of modality {modality}", route.processor
        yield f"the counting of slots of stream {route.stream}", route.slots
    for source in feed.mixture.sources:
        yield f"source {source.name!r}", source
    yield "the tokenizer", feed.planner.tokenizer
