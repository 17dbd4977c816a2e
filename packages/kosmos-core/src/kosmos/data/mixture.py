"""Which document comes next: one endless order of samples, dealt to lanes.

Draw number g of a source is row ``permutation(epoch)[g mod n]`` with ``epoch = g div n``. Lane l of L
takes the draws l, l + L, l + 2 L, ... of each source: no row twice or never within an epoch, whatever
the machine. Where rows are read in blocks, the permutation is one by which each lane meets few blocks at a time.
Among sources, a lane takes the one that would be furthest behind its weight in the middle of its next document, the
first lane, or in another part of it, the others. A document of a source that was not met yet is held to be as long as
the others are; before it is taken its length is looked up, so that a long one waits for its share. A draw of which
nothing could be used counts as a document of mean length, so that a source of bad rows does not keep the others
waiting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Source
from kosmos.data.shuffle import blocks_of, in_blocks
from kosmos.data.spread import spread_row

EPOCHS_KEPT = 2
"""Permutations of a source that are held, 4 bytes a row each: lanes near the end of an epoch need two."""
_GOLDEN = (5**0.5 - 1) / 2
"""What stands behind the point of its multiples is spread evenly, however many there are."""


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
    """For scoring: each source once, in its own order, at most so many documents of it, as ``spread`` chooses them."""
    even: bool = False
    """As of ``spread``."""
    num_lanes: int = 1
    """Lanes that the draws are dealt to."""
    row_tokens: int = 1
    """Tokens of a row. As long a document of a source is held to be of which none was read, before any was."""
    _orders: dict[int, dict[int, NDArray[np.unsignedinteger[Any]]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """By source and epoch, the one used last at the end."""

    @classmethod
    def read_once(cls, sources: Sequence[Source], most: int, *, even: bool = False, num_lanes: int = 1) -> Mixture:
        """For scoring: see ``once`` and ``even``."""
        return cls(tuple(sources), (1.0,) * len(sources), True, 0, once=most, even=even, num_lanes=num_lanes)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_orders": {}}

    @property
    def epoch(self) -> int | None:
        """Draws in which every document comes once; None where by weights they do not come equally often."""
        return sum(map(len, self.sources)) if self.by_documents else None

    def row(self, source: int, draw: int) -> int:
        """Row of ``source`` at draw number ``draw``."""
        size = len(self.sources[source])
        if self.once is not None:
            return spread_row(size, self.once, draw, even=self.even)
        epoch, place = divmod(draw, size)
        return self._order(source, epoch).item(place)

    def _order(self, source: int, epoch: int) -> NDArray[np.unsignedinteger[Any]]:
        orders = self._orders.setdefault(source, {})
        if epoch in orders:
            orders[epoch] = orders.pop(epoch)
            return orders[epoch]
        while len(orders) >= EPOCHS_KEPT:
            del orders[next(iter(orders))]
        orders[epoch] = self._new_order(source, epoch)
        return orders[epoch]

    def _new_order(self, source: int, epoch: int) -> NDArray[np.unsignedinteger[Any]]:
        size = len(self.sources[source])
        random = np.random.Generator(np.random.PCG64([self._seed(source), epoch]))
        blocks = blocks_of(self.sources[source])
        narrow = np.min_scalar_type(size)
        if blocks is not None:
            return in_blocks(blocks, self.num_lanes, epoch * size % self.num_lanes, random).astype(narrow)
        order = np.arange(size, dtype=narrow)
        random.shuffle(order)
        return order

    def random(self, source: int, draw: int) -> np.random.Generator | None:
        """What changes the media of a draw at random, the same wherever and whenever it is decoded; None in scoring."""
        return None if self.once is not None else np.random.Generator(np.random.PCG64([self._seed(source), draw, 1]))

    def origin(self, source: int, row: int) -> str:
        """Name of a row for humans, as good as the source can give it without reading the row."""
        return origin_of(self.sources[source], row)

    def limit(self, source: int) -> int:
        """Documents of ``source`` in a mixture that is read once."""
        assert self.once is not None
        return min(self.once, len(self.sources[source]))

    def _seed(self, source: int) -> int:
        named = f"{self.seed}/{source}/{self.sources[source].name}".encode()
        return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "little")


@dataclass
class Cursor:
    """How far one lane has read into the mixture."""

    mixture: Mixture
    lane: int
    draws: list[int] = field(default_factory=list)
    """Documents that this lane has drawn from each source."""
    tokens: list[int] = field(default_factory=list)
    """Tokens of them."""
    fruitless: list[int] = field(default_factory=list)
    """Those of them of which nothing could be used."""
    given: list[int] = field(default_factory=list)
    """Documents, and pieces of long ones, that came of each."""
    length_of: Callable[[int], int | None] | None = None
    """Tokens of what a source would give first; None where that is not known. Called at most once for each."""
    looks: bool = True
    """Whether it is asked: lanes of older versions held what they had not met to be as long as a row."""

    def __post_init__(self) -> None:
        assert 0 <= self.lane < self.mixture.num_lanes, (self.lane, self.mixture.num_lanes)
        self.draws = self.draws or [0] * len(self.mixture.sources)
        self.tokens = self.tokens or [0] * len(self.mixture.sources)
        self.fruitless = self.fruitless or [0] * len(self.mixture.sources)
        self.given = self.given or [0] * len(self.mixture.sources)
        self._changed: set[int] = set()
        self._first: dict[int, int | None] = {}
        self._reckon_all()

    def next(self) -> tuple[int, int] | None:
        """(source, draw) of the next document; None when a mixture that is read once is at its end."""
        source = self.pick()
        return None if source is None else (source, self.draw(source))

    def pick(self, unread: Mapping[int, float] | None = None) -> int | None:
        """The source that something is taken of next; None when a mixture that is read once is at its end.

        Args:
            unread: source to the documents that were drawn and not given yet, in parts of documents.
        """
        if self.mixture.once is not None:
            return self._first_left()
        unread = unread or {}
        changed = self._changed | self._settling | unread.keys()
        if self.mixture.by_documents:
            self._reckon_documents(changed, unread)
        else:
            self._reckon_tokens(changed)
        self._changed = set(unread)
        source = self._ahead.index(min(self._ahead))
        while self._is_new(source) and self._look_up(source):
            self._reckon_tokens([source])
            source = self._ahead.index(min(self._ahead))
        return source

    def _is_new(self, source: int) -> bool:
        """Whether it gives its first document next, of which nothing is known."""
        return not (self.mixture.by_documents or self.draws[source] or source in self._first)

    def _look_up(self, source: int) -> bool:
        """Whether a source gives something longer first than it was held to."""
        if not self.looks or self.length_of is None:
            return False
        self._first[source] = length = self.length_of(source)
        return length is not None and length > self._usual

    def draw(self, source: int) -> int:
        """Number of the draw of a source that is this lane's next."""
        self.draws[source] += 1
        self._changed.add(source)
        return (self.draws[source] - 1) * self.mixture.num_lanes + self.lane

    @property
    def _phase(self) -> float:
        """Where in their next documents the sources are held to be: in the middle, and elsewhere in other lanes.

        Else all lanes would come to a source of little weight in the same step, and then all leave it alone.
        """
        return (0.5 + self.lane * _GOLDEN) % 1.0

    def _reckon_all(self) -> None:
        """Where all sources stand is reckoned once, and then of those that change: of hundreds few do at a draw."""
        self._ahead = [0.0] * len(self.draws)
        self._changed = set(range(len(self.draws)))
        self._all_tokens, self._all_given = sum(self.tokens), sum(self.given)
        self._unmet = {source for source, count in enumerate(self.given) if not count}
        self._usual = self._usual_length()
        self._settling: set[int] = set()
        for source in self._changed:
            self._look_whether_settled(source)

    def _look_whether_settled(self, source: int) -> None:
        """Note whether where a source stands hangs on the mean length of all documents, which changes at each."""
        if not self.mixture.by_documents and self.fruitless[source]:
            self._settling.add(source)
        else:
            self._settling.discard(source)

    def _reckon_documents(self, sources: Iterable[int], unread: Mapping[int, float]) -> None:
        """How far each would be in its next document, by its weight."""
        phase, weights = self._phase, self.mixture.weights
        for i in sources:
            self._ahead[i] = (self.draws[i] - unread.get(i, 0.0) + phase) / weights[i]

    def _reckon_tokens(self, sources: Iterable[int]) -> None:
        """The same in tokens, of what is given at once: what a long text that is open will come to nobody knows yet."""
        phase, weights = self._phase, self.mixture.weights
        of_all = self._all_tokens / self._all_given if self._all_given else 1.0
        for i in sources:
            tokens, count = self.tokens[i], self.given[i]
            mean = tokens / count if count else max(self._first.get(i) or 0, self._usual)
            self._ahead[i] = (tokens + self.fruitless[i] * of_all + phase * mean) / weights[i]

    def _usual_length(self) -> float:
        """Tokens of what comes of a source that was not met: those of the others, to the next power of two, so that it
        seldom is another; a row at most."""
        if not self.looks or not self._all_given:
            return float(self.mixture.row_tokens)
        return min(self.mixture.row_tokens, 2.0 ** round(log2(self._all_tokens / self._all_given)))

    def _first_left(self) -> int | None:
        """Of a mixture that is read once: the first source that has a document left for this lane."""
        for source, draws in enumerate(self.draws):
            if draws * self.mixture.num_lanes + self.lane < self.mixture.limit(source):
                return source
        return None

    def count(self, source: int, tokens: int) -> None:
        """Note what was taken of ``source``; 0 where nothing of its last draw could be used."""
        self.tokens[source] += tokens
        self.fruitless[source] += tokens == 0
        self.given[source] += tokens > 0
        self._all_tokens += tokens
        self._all_given += tokens > 0
        self._changed.add(source)
        if tokens:
            self._unmet.discard(source)
        if self._unmet and self._usual != (usual := self._usual_length()):
            self._usual = usual
            self._changed |= self._unmet
        self._look_whether_settled(source)

    def state(self) -> dict[str, Any]:
        return {"draws": list(self.draws), "tokens": list(self.tokens), "fruitless": list(self.fruitless),
                "given": list(self.given), "looks": self.looks}  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``; those of old checkpoints do not tell fruitless draws, what was given, nor ``looks``."""
        self.draws, self.tokens = list(state["draws"]), list(state["tokens"])
        self.fruitless = list(state.get("fruitless", [0] * len(self.draws)))
        useful = [draws - bad for draws, bad in zip(self.draws, self.fruitless, strict=True)]
        self.given = list(state.get("given", useful))
        self.looks = state.get("looks", False)
        counts = self.draws, self.tokens, self.fruitless, self.given
        if {len(of) for of in counts} != {len(self.mixture.sources)}:
            raise ValueError(f"a lane counts other sources than the {len(self.mixture.sources)} of the run")
        self._reckon_all()


def origin_of(source: Source, row: int) -> str:
    """Name of a row for humans, as good as the source can give it without reading the row."""
    known = getattr(source, "origin", None)
    return str(known(row)) if known else f"{source.name}: row {row}"
