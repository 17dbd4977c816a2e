"""Choose the documents that fill a row, under a budget of tokens and of each stream's cells.

Exact subset sum over the lane's look-ahead: with documents much shorter than the row, a choice that
fills it to the last token nearly always exists. The oldest document is always taken, so none waits forever.
Of several choices that fill a row equally, the one is taken whose kinds of work stand in the proportion in which they
wait. So the rows of all lanes have about the same work for each encoder, without the lanes knowing of each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import gcd

import numpy as np
from numpy.typing import NDArray

from kosmos.data.plan import DocumentPlan

TRIES = 32
"""Choices among which the most even is taken."""


def choose(pending: Sequence[DocumentPlan], max_tokens: int, max_cells: Mapping[str, int]) -> list[int]:
    """Numbers of the documents to take, ascending; number 0, the oldest, is always among them."""
    works = [plan.work for plan in pending]
    lengths = [len(plan) for plan in pending]
    numbers: dict[str, int] = {}
    kinds = np.array([numbers.setdefault(kind, len(numbers)) for kind, _ in works])
    amounts = np.array([amount for _, amount in works])
    order = _evenly(kinds, amounts)
    tries = TRIES if len(numbers) > 1 or max_cells else 1
    waiting = min(1.0, max_tokens / sum(lengths)) * np.bincount(kinds, amounts)

    def choices(order: Sequence[int]) -> list[NDArray[np.int64]]:
        fills = _fills([lengths[i] for i in order], max_tokens - lengths[0], tries)
        return [np.array([0, *(order[i] for i in fill)]) for fill in fills]

    def most_even(choices: Sequence[NDArray[np.int64]]) -> list[int]:
        # How far the work of a row is from its share of what waits: the sum over kinds, each relative to that share.
        apart = [np.abs(np.bincount(kinds[c], amounts[c], len(numbers)) / waiting - 1).sum() for c in choices]
        return sorted(choices[int(np.argmin(apart))].tolist())

    found = choices(order)
    if not max_cells:
        return most_even(found)
    budgets = _Budgets(pending, max_cells)
    fitting = [c for c in found if budgets.keep(c)]
    if fitting:
        return most_even(fitting)
    # What takes the longest first would spend the documents without cells, and later rows could not be filled.
    even = most_even(choices(budgets.within(order)))
    tried = (budgets.greedy(lengths, max_tokens, taken) for taken in (even, [0]))
    return max(tried, key=lambda taken: sum(lengths[i] for i in taken))


def _evenly(kinds: NDArray[np.int64], amounts: NDArray[np.int64]) -> list[int]:
    """All numbers but 0 in an order of which any beginning holds about the same share of each kind of work.

    A document counts to the stream of which it has most cells; within a kind the older goes first.
    """
    shares = np.empty(len(kinds))
    for kind in range(kinds.max() + 1):
        of_kind = np.flatnonzero(kinds == kind)
        ends = np.cumsum(amounts[of_kind])
        shares[of_kind] = (ends - amounts[of_kind] / 2) / ends[-1]
    order: list[int] = (1 + np.argsort(shares[1:], kind="stable")).tolist()
    return order


def _fills(lengths: Sequence[int], room: int, most: int) -> Iterator[list[int]]:
    """Choices of ``lengths``, by number, whose sum is the largest that is at most ``room``; at most ``most`` of them.

    Bit b of ``reach[i]`` says that the first i lengths can sum to b: one shift and one or a length. Each choice ends
    with another length, and takes of those before it the earliest that do. What divides all lengths is taken out, else
    each of them would be looked at where they are even and ``room`` is not.
    """
    unit = gcd(*lengths) or 1
    lengths, room = [length // unit for length in lengths], room // unit
    mask = (1 << (room + 1)) - 1
    reach, more = [1], 0
    for length in lengths:
        more += reach[-1] >> room & 1
        if more >= most:
            break
        reach.append((reach[-1] | (reach[-1] << length)) & mask)
    total = reach[-1].bit_length() - 1
    if total == 0:
        yield []
    begins = list(accumulate(lengths, initial=0))
    for last, length in enumerate(lengths[: len(reach) - 1]):
        if most and total >= length and reach[last] >> (total - length) & 1:
            most -= 1
            yield [*_reconstructed(lengths, begins, reach, last, total - length), last]


def _reconstructed(
    lengths: Sequence[int], begins: Sequence[int], reach: Sequence[int], count: int, total: int
) -> list[int]:
    """The earliest of the first ``count`` lengths that sum to ``total``; ``begins[i]`` is the sum of the first i."""
    taken: list[int] = []
    for i in range(count, 0, -1):
        if total == begins[i]:  # all of them, which is soon the case
            return [*range(i), *taken[::-1]]
        if not reach[i - 1] >> total & 1:
            taken.append(i - 1)
            total -= lengths[i - 1]
    return taken[::-1]


class _Budgets:
    """Of which documents may be taken together, by the cells of each stream with a budget."""

    def __init__(self, pending: Sequence[DocumentPlan], max_cells: Mapping[str, int]) -> None:
        self.max_cells = max_cells
        self.cells = [plan.cells_by_stream for plan in pending]
        numbers = {name: number for number, name in enumerate(max_cells)}
        every = [(i, numbers[n], c) for i, of in enumerate(self.cells) for n, c in of.items() if n in numbers]
        self.table = np.zeros((len(pending), len(numbers)), np.int64)
        if every:
            documents, streams, cells = zip(*every, strict=True)
            self.table[documents, streams] = cells
        self.most = np.array([*max_cells.values()], np.int64)

    def keep(self, taken: NDArray[np.int64]) -> bool:
        """Whether the documents ``taken`` keep to them together."""
        return bool((self.table[taken].sum(0) <= self.most).all())

    def within(self, order: Sequence[int]) -> list[int]:
        """Of ``order``, documents of which any may be taken beside number 0: together they keep to the budgets."""
        left = self._left([0])
        return [i for i in order if self._taken_off(i, left)]

    def greedy(self, lengths: Sequence[int], max_tokens: int, taken: Sequence[int]) -> list[int]:
        """Those that are ``taken``, then the longest that fits, under all budgets."""
        order = sorted(set(range(len(lengths))).difference(taken), key=lambda i: -lengths[i])
        found, room, left = [*taken], max_tokens - sum(lengths[i] for i in taken), self._left(taken)
        for i in order:
            if lengths[i] <= room and self._taken_off(i, left):
                found.append(i)
                room -= lengths[i]
        return sorted(found)

    def _left(self, taken: Sequence[int]) -> dict[str, int]:
        left: list[int] = (self.most - self.table[taken].sum(0)).tolist()
        return dict(zip(self.max_cells, left, strict=True))

    def _taken_off(self, number: int, left: dict[str, int]) -> bool:
        """Whether a document fits into what is ``left``, which is then less."""
        cells = self.cells[number]
        for name, wanted in cells.items():
            if wanted > left.get(name, wanted):
                return False
        for name in left.keys() & cells.keys():
            left[name] -= cells[name]
        return True
