"""Some of a source's documents: a run is to train on so many of them at most, or to hold out a share of its own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Blocks, Document, Source
from kosmos.data.fingerprint import fingerprint_of
from kosmos.data.foreign import calling
from kosmos.data.shuffle import blocks_of
from kosmos.data.sources.opening import Parts
from kosmos.data.sources.source import RowSource
from kosmos.data.sources.splits import Split
from kosmos.errors import ConfigError, EmptySplit


@dataclass(frozen=True)
class FewerToTrainOn:
    """A data set of which at most ``limit`` documents are trained on (``Parts``). What is held out stays as it is."""

    parts: Parts
    limit: int
    seed: int

    def part(self, split: Split, share: float) -> Source:
        """As of any ``Parts``."""
        source = self.parts.part(split, share)
        return source if split == "held_out" else some_of(source, self.limit, self.seed)

    def whole(self) -> Source:
        """As of any ``Parts``."""
        return self.parts.whole()


@dataclass(frozen=True)
class OwnShare:
    """A data set of which a share of its own is held out, where it states no split (``Parts``)."""

    parts: Parts
    share: float

    def part(self, split: Split, share: float) -> Source:
        """As of any ``Parts``, but for the share."""
        return self.parts.part(split, self.share)

    def whole(self) -> Source:
        """As of any ``Parts``."""
        return self.parts.whole()


def own_share(parts: Parts, share: float, where: str) -> Parts:
    """A data set that stands at ``where`` in the run file, with a share of its own.

    Raises:
        ConfigError: the data state a split.
    """
    with suppress(EmptySplit):
        parts.part("held_out", 0.0)
        raise ConfigError(f"{where}.held_out: the data state themselves what is held out, and that stays; leave it out")
    return OwnShare(parts, share)


def some_of(source: Source, limit: int, seed: int) -> Source:
    """At most ``limit`` documents, drawn at random, in their order. Those of a lower limit are among those of a higher
    one."""
    size = len(source)
    if limit >= size:
        return source
    named = blake2b(f"{seed}/{source.name}".encode(), digest_size=8).digest()  # others for each source of a run
    random = np.random.Generator(np.random.PCG64(int.from_bytes(named, "little")))
    order = np.arange(size, dtype=np.min_scalar_type(size))
    random.shuffle(order)
    rows = np.sort(order[:limit]).astype(np.int64)
    if isinstance(source, RowSource):
        return replace(source, rows=source.rows[rows])
    return SomeDocuments(source.name, source, rows)


@dataclass(eq=False, repr=False)
class SomeDocuments:
    """Some documents of a source (a ``Source``)."""

    name: str
    source: Source
    rows: NDArray[np.int64]
    """Their numbers in it: [documents]."""

    def __repr__(self) -> str:
        return f"SomeDocuments({self.name!r}, {len(self):,} documents)"

    def __len__(self) -> int:
        return len(self.rows)

    def origin(self, index: int) -> str:
        """Which document it is, for humans, by its number in the whole source."""
        row = int(self.rows[index])
        known = getattr(self.source, "origin", None)
        return str(known(row)) if known else f"{self.name}: row {row}"

    def blocks(self) -> Blocks | None:
        """Which documents are read together; None where each is read alone."""
        found = blocks_of(self.source)
        return None if found is None else Blocks(np.asarray(found.of)[self.rows], found.at_once)

    def fingerprint(self) -> str | None:
        """Of the whole source, of which a limit and a seed draw the same."""
        return fingerprint_of(self.source)

    def document(self, index: int) -> Document:
        """As of the source."""
        with calling(self.source, "document"):  # else it would bear this class's name
            return self.source.document(int(self.rows[index]))
