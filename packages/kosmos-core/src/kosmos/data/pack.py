"""Choose the documents that fill a row, under a budget of tokens and of each stream's cells.

Exact subset sum over the lane's look-ahead: with documents much shorter than the row, a choice that
fills it to the last token nearly always exists. The oldest document is always taken, so none waits forever.
Of several choices that fill a row equally, the one is taken whose kinds of work stand in the proportion in which they
wait. So the rows of all lanes have about the same work for each encoder, without the lanes knowing of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from kosmos.data.plan import DocumentPlan

TRIES = 32
"""Choices among which the most even is taken."""


def choose(pending: Sequence[DocumentPlan], max_tokens: int, max_cells: Mapping[str, int]) -> list[int]:
    """Numbers of the documents to take, ascending; number 0, the oldest, is always among them."""
    works = [plan.work for plan in pending]
    order = _evenly(works)
    lengths = [len(plan) for plan in pending]
    numbers: dict[str, int] = {}
    kinds = np.array([numbers.setdefault(kind, len(numbers)) for kind, _ in works])
    amounts = np.array([amount for _, amount in works])
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
    fitting = [c for c in found if _cells_fit(pending, c, max_cells)] if max_cells else found
    if fitting:
        return most_even(fitting)
    # What takes the longest first would spend the documents without cells, and later rows could not be filled.
    even = most_even(choices(_within(pending, order, max_cells)))
    tried = (_greedy(pending, max_tokens, max_cells, taken) for taken in (even, [0]))
    return max(tried, key=lambda taken: sum(lengths[i] for i in taken))


def _evenly(works: Sequence[tuple[str, int]]) -> list[int]:
    """All numbers but 0 in an order of which any beginning holds about the same share of each kind of work.

    A document counts to the stream of which it has most cells; within a kind the older goes first.
    """
    totals: dict[str, int] = {}
    middles = []
    for kind, amount in works:
        before = totals.get(kind, 0)
        middles.append(before + amount / 2)
        totals[kind] = before + amount
    shares = [middle / totals[kind] for middle, (kind, _) in zip(middles, works, strict=True)]
    return sorted(range(1, len(works)), key=shares.__getitem__)


def _fills(lengths: Sequence[int], room: int, most: int) -> Iterator[list[int]]:
    """Choices of ``lengths``, by number, whose sum is the largest that is at most ``room``; at most ``most`` of them.

    Bit b of ``reach[i]`` says that the first i lengths can sum to b: one shift and one or a length. Each choice ends
    with another length, and takes of those before it the earliest that do.
    """
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


def _within(pending: Sequence[DocumentPlan], order: Sequence[int], max_cells: Mapping[str, int]) -> list[int]:
    """Of ``order``, documents of which any may be taken beside number 0: together they keep to the budgets of cells."""
    cells = {name: pending[0].cells(name) for name in max_cells}
    kept = []
    for i in order:
        wanted = {name: cells[name] + pending[i].cells(name) for name in cells}
        if all(wanted[name] <= max_cells[name] for name in cells):
            kept.append(i)
            cells = wanted
    return kept


def _greedy(
    pending: Sequence[DocumentPlan], max_tokens: int, max_cells: Mapping[str, int], taken: Sequence[int]
) -> list[int]:
    """Those that are ``taken``, then the longest that fits, under all budgets."""
    order = sorted(set(range(len(pending))).difference(taken), key=lambda i: -len(pending[i]))
    found = [*taken]
    tokens = sum(len(pending[i]) for i in taken)
    cells = {name: sum(pending[i].cells(name) for i in taken) for name in max_cells}
    for i in order:
        wanted = {name: cells[name] + pending[i].cells(name) for name in cells}
        if tokens + len(pending[i]) <= max_tokens and all(wanted[name] <= max_cells[name] for name in cells):
            found.append(i)
            tokens, cells = tokens + len(pending[i]), wanted
    return sorted(found)


def _cells_fit(pending: Sequence[DocumentPlan], taken: Iterable[int], max_cells: Mapping[str, int]) -> bool:
    return all(sum(pending[i].cells(name) for i in taken) <= most for name, most in max_cells.items())
