"""What a data worker is told at its start: the feed, and of its lanes what is its own and where they are, pickled."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kosmos.data.foreign import first_line
from kosmos.data.lane import Feed
from kosmos.errors import PluginError


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


def pickled(feed: Feed, lanes: Mapping[int, tuple[Share, Place]]) -> bytes:
    """The orders of a worker.

    Raises:
        PluginError: a processor, a source or another part cannot be pickled; it is named.
    """
    try:
        return pickle.dumps((feed, dict(lanes)), pickle.HIGHEST_PROTOCOL)
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
