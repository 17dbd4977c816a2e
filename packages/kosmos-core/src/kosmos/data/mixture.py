"""Which document comes next: one endless order of samples, dealt to lanes.

Draw number g of a source is row ``permutation(epoch)[g mod n]`` with ``epoch = g div n``. Lane l of L
takes the draws l, l + L, l + 2 L, ... of each source: no row twice or never within an epoch, whatever
the machine. Among sources, a lane takes the one that is furthest behind its weight.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Source


@dataclass(frozen=True)
class Mixture:
    """The sources of a run with their weights. Picklable."""

    sources: tuple[Source, ...]
    weights: tuple[float, ...]
    """Shares. Of tokens, or of documents where ``by_documents``."""
    by_documents: bool
    """No weights were stated: every document equally often."""
    seed: int
    once: int | None = None
    """For scoring: each source once, in its own order, at most so many documents of it, evenly spread."""

    def row(self, source: int, draw: int) -> int:
        """Row of ``source`` at draw number ``draw``."""
        size = len(self.sources[source])
        if self.once is not None:
            return draw * size // self.limit(source)
        return int(_permutation(size, self._seed(source), draw // size)[draw % size])

    def origin(self, source: int, row: int) -> str:
        """Name of a row for humans, as good as the source can give it without reading the row."""
        known = getattr(self.sources[source], "origin", None)
        return str(known(row)) if known else f"{self.sources[source].name}: row {row}"

    def limit(self, source: int) -> int:
        """Documents of ``source`` in a mixture that is read once."""
        assert self.once is not None
        return min(self.once, len(self.sources[source]))

    def _seed(self, source: int) -> int:
        named = f"{self.seed}/{source}/{self.sources[source].name}".encode()
        return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "little")


@lru_cache(maxsize=64)
def _permutation(size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(size)


@dataclass
class Cursor:
    """How far one lane has read into the mixture."""

    mixture: Mixture
    lane: int
    num_lanes: int
    draws: list[int] = field(default_factory=list)
    """Documents that this lane has drawn from each source."""
    tokens: list[int] = field(default_factory=list)
    """Tokens of them."""

    def __post_init__(self) -> None:
        self.draws = self.draws or [0] * len(self.mixture.sources)
        self.tokens = self.tokens or [0] * len(self.mixture.sources)

    def next(self) -> tuple[int, int] | None:
        """(source, draw) of the next document; None when a mixture that is read once is at its end."""
        if self.mixture.once is not None:
            return self._next_once()
        done = self.draws if self.mixture.by_documents else self.tokens
        weights = self.mixture.weights
        source = min(range(len(weights)), key=lambda i: ((done[i] + 0.5) / weights[i], i))
        draw = self.draws[source] * self.num_lanes + self.lane
        self.draws[source] += 1
        return source, draw

    def _next_once(self) -> tuple[int, int] | None:
        for source in range(len(self.draws)):
            draw = self.draws[source] * self.num_lanes + self.lane
            if draw < self.mixture.limit(source):
                self.draws[source] += 1
                return source, draw
        return None

    def count(self, source: int, tokens: int) -> None:
        self.tokens[source] += tokens

    def state(self) -> dict[str, Any]:
        return {"draws": list(self.draws), "tokens": list(self.tokens)}
