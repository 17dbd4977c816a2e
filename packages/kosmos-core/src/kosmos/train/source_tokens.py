"""How many tokens the documents of each source come to, by some of them. No torch here.

Where it is known how many bytes each document takes, tokens are held to go by bytes as they do among those that are
looked at: a linear regression, whose mean of bytes is that of all. Its error is that of what bytes do not tell. It is
made of the documents between each two powers of two bytes by themselves: the largest weigh most and may be large for
another reason, such as a column that is not read, which says nothing of the others.

Source: W. G. Cochran, Sampling Techniques, 3rd edition, chapters 5A (strata) and 7 (the regression estimator).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from kosmos.data.lane import Feed, Lane
from kosmos.data.plan import DocumentPlan
from kosmos.data.shuffle import blocks_of
from kosmos.data.sources.source import RowSource
from kosmos.data.waiting_media import let_go

LOOKED_AT = 4096
"""Documents whose headers are read, or as many as there are."""
FEWEST = 16
"""Of those of a source, and of those of it between two powers of two bytes."""
FEW = 2
"""Of the latter, of sources of which few are looked at: of hundreds of sources it would be thousands."""
AT_A_TIME = 4
"""Documents of a stretch, which lie together, before those of the next where time may run out."""
STRETCHES = 16
"""Of the draws of a source: rows that are read in blocks lie beside their like."""


@dataclass(frozen=True)
class SourceTokens:
    """Of all documents of a source."""

    documents: int
    looked_at: int
    total: float
    error: float
    """Standard error of ``total``; 0 where all were looked at."""

    @property
    def share(self) -> float:
        """The error over the total."""
        return self.error / self.total if self.total else 0.0


@dataclass
class HeaderLane(Lane):
    """One that reads no header twice: of few documents each comes often, and to every lane."""

    known: dict[tuple[int, int], list[DocumentPlan]] = field(default_factory=dict)

    def plans(self, source: int, draw: int) -> list[DocumentPlan]:
        return self.plans_of(source, self.feed.mixture.row(source, draw))

    def plans_of(self, source: int, row: int) -> list[DocumentPlan]:
        """As ``plans``, of the document of this number."""
        if (source, row) in self.known:
            return self.known[source, row]
        found = [let_go(plan) for plan in self.read_row(source, row)[1]]
        if found:  # of what cannot be used each lane has to tell
            self.known[source, row] = found
        return found


def wanted_of(feed: Feed) -> list[int]:
    """How many documents of each source are to be looked at."""
    sizes = [len(source) for source in feed.mixture.sources]
    return [min(size, max(FEWEST, math.ceil(LOOKED_AT * size / sum(sizes)))) for size in sizes]


def tokens_of_sources(
    lane: HeaderLane, moved: Callable[[], None] = lambda: None, *, seconds: float = math.inf
) -> list[SourceTokens]:
    """Tokens of the documents of each source that can be used.

    Args:
        moved: called after each document.
        seconds: that it may take, after which fewer are looked at.
    """
    wanted, begin = wanted_of(lane.feed), time.monotonic()
    ends = [begin + seconds * part / sum(wanted) for part in accumulate(wanted)]
    return [_tokens_of(lane, number, *of, moved) for number, of in enumerate(zip(wanted, ends, strict=True))]


def _tokens_of(lane: HeaderLane, number: int, wanted: int, end: float, moved: Callable[[], None]) -> SourceTokens:
    source = lane.feed.mixture.sources[number]
    size = len(source)
    drawn = some_of(size, wanted)
    if math.isfinite(end):
        drawn = _in_turn(drawn, size)
    rows = np.array([lane.feed.mixture.row(number, draw) for draw in drawn], np.int64)

    def length(row: int) -> int:
        found = sum(map(len, lane.plans_of(number, row)))
        moved()
        return found

    taken: list[int] = []
    for row in rows.tolist():
        if len(taken) >= FEWEST and time.monotonic() > end:
            wanted = len(taken)
            drawn, rows = drawn[:wanted], rows[:wanted]
            break
        taken.append(length(row))
    lengths = np.array(taken, np.float64)
    if len(drawn) == size:
        return SourceTokens(size, size, float(lengths.sum()), 0.0)
    nbytes = source.nbytes() if isinstance(source, RowSource) else None
    if blocks_of(source) is not None:
        groups = np.searchsorted(_begins(size), np.asarray(drawn), side="right")
        known = None if nbytes is None else (nbytes[rows], float(nbytes.mean()))
        return _of_parts(size, [(size, *estimated_mean(lengths, known, groups), len(rows))])
    if nbytes is None:
        return _of_parts(size, [(size, *estimated_mean(lengths, None), len(rows))])
    return _of_parts(size, list(_by_size(nbytes, rows, lengths, length)))


def _in_turn(drawn: Sequence[int], size: int) -> list[int]:
    """A few of each stretch after the other, so that fewer are of all of them, too."""
    stretches = np.searchsorted(_begins(size), np.asarray(drawn), side="right")
    places = (np.arange(len(drawn)) - np.searchsorted(stretches, stretches)) // AT_A_TIME
    return [drawn[number] for number in np.lexsort((stretches, places)).tolist()]


def _by_size(
    nbytes: NDArray[np.float64], rows: NDArray[np.int64], lengths: NDArray[np.float64], length: Callable[[int], int]
) -> Iterator[tuple[int, float, float, int]]:
    """Of the documents between each two powers of two bytes: how many there are, their mean length and its standard
    error, and how many were looked at.

    Args:
        rows: that were looked at, whose ``lengths`` these are: [n].
        length: looks at another.
    """
    every, fewest = np.frexp(nbytes)[1], min(FEWEST, max(FEW, len(rows) // FEWEST))
    of_rows = every[rows]
    for power in np.unique(every).tolist():
        own = of_rows == power
        some, its = rows[own], lengths[own]
        there = np.flatnonzero(every == power)
        if (lacking := min(fewest, len(there)) - len(some)) > 0:
            others = np.setdiff1d(there, some)
            more = others[np.linspace(0, len(others) - 1, lacking).astype(np.int64)]
            some = np.concatenate([some, more])
            its = np.concatenate([its, [length(row) for row in more.tolist()]])
        known = nbytes[some], float(nbytes[there].mean())
        yield len(there), *estimated_mean(its, known), len(some)


def _of_parts(size: int, parts: Sequence[tuple[int, float, float, int]]) -> SourceTokens:
    """
    Args:
        parts: documents of each, as ``_by_size`` tells of them.
    """
    total = sum(there * mean for there, mean, _, _ in parts)
    # The fewer there are that were not looked at, the less they tell otherwise.
    errors = [there * error * math.sqrt(1 - seen / there) if seen < there else 0.0 for there, _, error, seen in parts]
    return SourceTokens(size, sum(seen for *_, seen in parts), total, math.hypot(*errors))


def estimated_mean(
    lengths: NDArray[np.float64],
    known: tuple[NDArray[np.float64], float] | None,
    groups: NDArray[np.int64] | None = None,
) -> tuple[float, float]:
    """The mean length of all documents, by some, and its standard error.

    Args:
        lengths: of those that were looked at: [n].
        known: what they are known to take [n], and the mean of that over all documents.
        groups: which of them were found together, so that they tell less than as many others: [n].
    """
    mean = float(lengths.mean())
    error = _error(lengths - mean, groups, 1)
    if known is None or len(lengths) < FEWEST // 2:
        return mean, error
    sizes, of_all = known
    off = sizes - sizes.mean()
    if not (spread := float(off @ off)):
        return mean, error
    slope = float(off @ (lengths - mean)) / spread
    left = lengths - mean - slope * off
    away = of_all - float(sizes.mean())
    by_size = _error(left, groups, 2) * math.sqrt(1 + len(lengths) * away**2 / spread)
    regressed = mean + slope * away
    return (regressed, by_size) if by_size < error and regressed > 0 else (mean, error)


def _error(left: NDArray[np.float64], groups: NDArray[np.int64] | None, fitted: int) -> float:
    """Standard error of a mean, by what is left of each value without it and what else was ``fitted``."""
    if groups is None:
        free = len(left) - fitted
        return math.sqrt(float(left @ left) / free / len(left)) if free > 0 else math.inf
    sums = np.bincount(groups, left)[np.unique(groups)]
    free = len(sums) - fitted
    return math.sqrt(float(sums @ sums) * len(sums) / free) / len(left) if free > 0 else math.inf


def some_of(size: int, wanted: int) -> list[int]:
    """About ``wanted`` of an epoch's ``size`` draws, in stretches that lie evenly over it; all where they are fewer."""
    if wanted >= size:
        return list(range(size))
    each = math.ceil(wanted / STRETCHES)
    return sorted({begin + draw for begin in _begins(size) for draw in range(each) if begin + draw < size})


def _begins(size: int) -> list[int]:
    """First draw of each stretch."""
    return [number * size // STRETCHES for number in range(STRETCHES)]
