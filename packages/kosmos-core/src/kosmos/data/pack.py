"""Choose the documents that fill a row, under a budget of tokens and of each stream's cells.

Exact subset sum over the lane's look-ahead: with documents much shorter than the row, a choice that
fills it to the last token nearly always exists. The oldest document is always taken, so none waits forever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kosmos.data.plan import DocumentPlan


def choose(pending: Sequence[DocumentPlan], max_tokens: int, max_cells: Mapping[str, int]) -> list[int]:
    """Numbers of the documents to take, ascending; number 0, the oldest, is always among them."""
    room = max_tokens - len(pending[0])
    best = [0, *(i + 1 for i in _subset([len(p) for p in pending[1:]], room))]
    return best if _cells_fit(pending, best, max_cells) else _greedy(pending, max_tokens, max_cells)


def _subset(lengths: Sequence[int], room: int) -> list[int]:
    """Numbers of ``lengths`` whose sum is the largest that is at most ``room``.

    Bit b of ``reach[i]`` says that the first i lengths can sum to b: one shift and one or a length.
    """
    mask = (1 << (room + 1)) - 1
    reach = [1]
    for length in lengths:
        reach.append((reach[-1] | (reach[-1] << length)) & mask)
        if reach[-1] >> room & 1:
            break
    total = reach[-1].bit_length() - 1
    taken: list[int] = []
    for i in range(len(reach) - 1, 0, -1):
        if not reach[i - 1] >> total & 1:
            taken.append(i - 1)
            total -= lengths[i - 1]
    return taken[::-1]


def _greedy(pending: Sequence[DocumentPlan], max_tokens: int, max_cells: Mapping[str, int]) -> list[int]:
    """The oldest first, then the longest that fits, under all budgets."""
    order = [0, *sorted(range(1, len(pending)), key=lambda i: -len(pending[i]))]
    taken: list[int] = []
    tokens, cells = 0, dict.fromkeys(max_cells, 0)
    for i in order:
        wanted = {name: cells[name] + pending[i].cells(name) for name in cells}
        if tokens + len(pending[i]) <= max_tokens and all(wanted[name] <= max_cells[name] for name in cells):
            taken.append(i)
            tokens, cells = tokens + len(pending[i]), wanted
    return sorted(taken)


def _cells_fit(pending: Sequence[DocumentPlan], taken: Sequence[int], max_cells: Mapping[str, int]) -> bool:
    return all(sum(pending[i].cells(name) for i in taken) <= most for name, most in max_cells.items())
