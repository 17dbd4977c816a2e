"""Some of many rows: what is scored of a source that has more than are wanted.

Every n-th row would follow whatever alternates in the order of the rows: of answers yes, no, yes, no every second one
is a yes. So some are drawn in each of many stretches, by fixed numbers: always the same rows of so many, whatever the
machine, the process and the version of a library.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

STRETCH = 32
"""Rows that are drawn in one stretch. Were it one, some stretches would be of one row, which would always be drawn, and
others of two; of so many, stretches are as good as equally long."""
KEPT = 4096
"""Stretches whose rows are held, that of 131,072 rows."""
_WORD = 2**64 - 1


def spread(count: int, most: int, *, even: bool = False) -> NDArray[np.int64]:
    """``most`` of ``count`` rows, ascending; all where they are no more.

    Args:
        even: every n-th, as was done before some were drawn.
    """
    taken = min(count, most)
    if even or taken == count:
        return np.arange(taken, dtype=np.int64) * count // max(taken, 1)
    parts = [_stretch(count, taken, number) for number in range(-(-taken // STRETCH))]
    return np.array([row for part in parts for row in part], np.int64)


def spread_row(count: int, most: int, place: int, *, even: bool = False) -> int:
    """Row number ``place`` of ``spread``."""
    taken = min(count, most)
    if even or taken == count:
        return place * count // taken
    return _stretch(count, taken, place // STRETCH)[place % STRETCH]


@lru_cache(KEPT)
def _stretch(count: int, taken: int, number: int) -> tuple[int, ...]:
    """The rows that are drawn in one stretch, ascending.

    Source: R. Floyd's sampling without replacement (Bentley and Floyd, "A sample of brilliance", CACM 30(9), 1987).
    """
    first, end = number * STRETCH, min((number + 1) * STRETCH, taken)
    begin, behind = first * count // taken, end * count // taken
    size, found = behind - begin, set[int]()
    for last in range(size - (end - first), size):
        at = _number(begin + last) % (last + 1)
        found.add(last if at in found else at)
    return tuple(begin + at for at in sorted(found))


def _number(of: int) -> int:
    """64 bits that follow from a number and look random.

    Source: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
    """
    mixed = ((of + 1) * 0x9E3779B97F4A7C15) & _WORD
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _WORD
    return mixed ^ (mixed >> 31)
