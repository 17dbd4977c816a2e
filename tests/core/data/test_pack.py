from __future__ import annotations

import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.document import Media
from kosmos.data.pack import _Budgets, choose
from kosmos.data.plan import DocumentPlan, PlannedMedia
from kosmos.data.processor import Grid, MediaPlan


def plan_of(tokens: int, cells: int = 0, stream: str = "ticks") -> DocumentPlan:
    media = (PlannedMedia(Media(stream, b""), MediaPlan((Grid(cells, 1, 1),)), stream),) if cells else ()
    return DocumentPlan("", ("text",), np.zeros(tokens, np.int32), np.ones(tokens, np.bool_), media, {})


@given(st.lists(st.integers(1, 40), min_size=1, max_size=9), st.integers(40, 90))
def test_the_fullest_row_with_the_oldest_document_is_chosen(lengths, room):
    taken = choose([plan_of(n) for n in lengths], room, {})
    rest = range(1, len(lengths))
    sums = (lengths[0] + sum(c) for k in range(len(lengths)) for c in combinations([lengths[i] for i in rest], k))
    assert taken[0] == 0
    assert taken == sorted(set(taken))
    assert sum(lengths[i] for i in taken) == max(s for s in sums if s <= room)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20)), min_size=1, max_size=30))
def test_no_budget_is_ever_exceeded(documents):
    plans = [plan_of(tokens, cells) for tokens, cells in documents]
    taken = choose(plans, 64, {"ticks": 24})
    assert 0 in taken
    assert sum(documents[i][0] for i in taken) <= 64
    assert sum(documents[i][1] for i in taken) <= 24


def test_rows_of_documents_of_mixed_lengths_are_full():
    random = np.random.default_rng(0)
    pending = [plan_of(int(n)) for n in random.integers(8, 60, 128)]
    for _ in range(2):
        taken = choose(pending, 1024, {})
        assert sum(len(pending[i]) for i in taken) == 1024
        pending = [p for i, p in enumerate(pending) if i not in taken]


def test_rows_of_four_lanes_hold_about_as_many_cells_of_each_stream():
    random = np.random.default_rng(0)

    def drawn() -> DocumentPlan:
        if random.random() < 0.6:
            return plan_of(int(random.integers(100, 400)))
        return plan_of(int(random.integers(8, 60)), 100, stream="ticks" if random.random() < 0.5 else "tocks")

    lanes = [[drawn() for _ in range(256)] for _ in range(4)]
    cells = {"ticks": np.zeros((20, 4)), "tocks": np.zeros((20, 4))}
    for step in range(20):
        for lane, pending in enumerate(lanes):
            taken = choose(pending, 2048, {})
            assert sum(len(pending[i]) for i in taken) == 2048
            for name, counted in cells.items():
                counted[step, lane] = sum(pending[i].cells(name) for i in taken)
            lanes[lane] = [p for i, p in enumerate(pending) if i not in taken] + [drawn() for _ in taken]
    for counted in cells.values():
        assert np.abs(counted - counted.mean()).mean() <= 100  # one item


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20)), min_size=1, max_size=30))
def test_what_is_left_does_not_fit_beside_what_is_taken(documents):
    taken = choose([plan_of(*d) for d in documents], 64, {"ticks": 24})
    tokens, cells = (sum(documents[i][n] for i in taken) for n in (0, 1))
    left = set(range(len(documents))).difference(taken)
    assert not [i for i in left if tokens + documents[i][0] <= 64 and cells + documents[i][1] <= 24]


def test_a_row_is_filled_to_its_last_token():
    budgets = _Budgets([plan_of(10, 5), plan_of(54)], {"ticks": 24})
    assert budgets.greedy([10, 54], 64, [0]) == [0, 1]


@pytest.mark.parametrize("seed", [0, 2])
def test_rows_are_full_under_a_budget_of_cells_that_is_little_more_than_documents_have(seed):
    random = np.random.default_rng(seed)

    def drawn() -> DocumentPlan:
        """A row of 2,048 tokens has 1,830 cells of each stream on average."""
        if random.random() < 0.5:
            return plan_of(int(random.integers(20, 400)))
        tokens = int(random.integers(40, 300))
        return plan_of(tokens, 4 * tokens, stream="ticks" if random.random() < 0.5 else "tocks")

    pending, filled = [drawn() for _ in range(128)], 0
    for _ in range(200):
        taken = choose(pending, 2048, {"ticks": 2080, "tocks": 2080})
        filled += sum(len(pending[i]) for i in taken)
        pending = [p for i, p in enumerate(pending) if i not in taken] + [drawn() for _ in taken]
    # Measured 0 % missing; 2.4 and 2.6 % where the longest were taken first.
    assert filled > 0.99 * 200 * 2048


def test_lengths_that_share_a_divisor_are_not_all_looked_at_where_the_room_is_no_multiple_of_it():
    random = np.random.default_rng(0)
    pending = [plan_of(101), *(plan_of(2 * int(n)) for n in random.integers(10, 300, 2000))]
    tracemalloc.start()
    taken = choose(pending, 131_072, {})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(len(pending[i]) for i in taken) == 131_071
    assert most < 8e6  # measured 2e6; 32e6 where they are all looked at, in proportion to how many wait
