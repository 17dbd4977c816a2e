from __future__ import annotations

import json
import pickle
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.document import Blocks
from kosmos.data.mixture import Cursor, Mixture
from kosmos.data.shuffle import in_blocks
from kosmos.data.spread import spread
from kosmos.errors import DataError
from support.ticks import TicksSource


@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 2**32))
def test_lanes_together_draw_each_row_once_in_each_epoch(size, num_lanes, seed):
    mixture = Mixture((TicksSource("train", size),), (1.0,), True, seed, num_lanes=num_lanes)
    lanes = [Cursor(mixture, lane) for lane in range(num_lanes)]
    draws = sorted(draw for _ in range(size) for lane in lanes for _, draw in [lane.next()])
    assert draws == list(range(size * num_lanes))
    for epoch in range(num_lanes):
        rows = [mixture.row(0, draw) for draw in range(epoch * size, (epoch + 1) * size)]
        assert sorted(rows) == list(range(size))


class Blocked(TicksSource):
    """Ticks that are read in blocks of three."""

    def blocks(self) -> Blocks:
        return Blocks(np.arange(len(self)) // 3, 2)


@given(st.integers(1, 60), st.integers(1, 7), st.integers(0, 2**32))
def test_a_lane_comes_to_each_block_once_in_an_epoch(size, num_lanes, seed):
    mixture = Mixture((Blocked("train", size),), (1.0,), True, seed, num_lanes=num_lanes)
    for epoch in range(3):
        rows = {draw: mixture.row(0, draw) for draw in range(epoch * size, (epoch + 1) * size)}
        assert sorted(rows.values()) == list(range(size))
        for lane in range(num_lanes):
            blocks = [row // 3 for draw, row in rows.items() if draw % num_lanes == lane]
            kept, reads = [], []
            for block in blocks:
                if block not in kept:
                    reads.append(block)
                kept = [*(other for other in kept if other != block), block][-2:]
            assert len(reads) == len(set(blocks))


@given(
    st.lists(st.integers(-3, 5), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 6), st.integers(0, 5),
    st.integers(0, 99),
)  # fmt: skip
def test_lanes_meet_stretches_of_blocks_however_they_are_numbered(of, at_once, lanes, first, seed):
    order = in_blocks(Blocks(np.array(of), at_once), lanes, first % lanes, np.random.default_rng(seed))
    assert sorted(order.tolist()) == list(range(len(of)))
    met = [of[row] for lane in range(lanes) for row in order[(lane - first) % lanes :: lanes]]
    # One after the other the lanes' stretches are all blocks in turn, shuffled among ``at_once`` at most.
    for block in set(met):
        last = len(met) - met[::-1].index(block)
        assert len(set(met[met.index(block) : last])) <= 2 * at_once - 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda self: Blocks(np.zeros(8, np.int64), 1), "expected Blocks of 9 documents, at least 1 at once"),
        (lambda self: Blocks(np.zeros(9, np.int64), 0), "expected Blocks of 9 documents, at least 1 at once"),
        (lambda self: (np.zeros(9, np.int64), 1), "expected Blocks of 9 documents"),
        (lambda self, start: None, "raised TypeError"),
        (lambda self: {}["x"], "raised KeyError: 'x'"),
    ],
)  # fmt: skip
def test_blocks_that_cannot_be_are_refused_by_name(wrong, reason, monkeypatch):
    monkeypatch.setattr(Blocked, "blocks", wrong)
    with pytest.raises(DataError, match=rf"^ticks: Blocked\.blocks:? {reason}"):
        Mixture((Blocked("train", 9),), (1.0,), True, 0).row(0, 0)


@pytest.mark.parametrize("other", [("a", "b"), lambda self: None])
def test_what_is_no_answer_about_blocks_is_none(other, monkeypatch):
    plain = Mixture((TicksSource("train", 9),), (1.0,), True, 0)
    monkeypatch.setattr(Blocked, "blocks", other)
    mixture = Mixture((Blocked("train", 9),), (1.0,), True, 0)
    assert [mixture.row(0, draw) for draw in range(9)] == [plain.row(0, draw) for draw in range(9)]


def test_epochs_have_different_orders():
    mixture = Mixture((TicksSource("train", 50),), (1.0,), True, 0)
    orders = [[mixture.row(0, epoch * 50 + i) for i in range(50)] for epoch in range(3)]
    assert orders[0] != orders[1] != orders[2]


def test_without_weights_every_document_is_drawn_equally_often():
    sources = (TicksSource("train", 90, name="many"), TicksSource("train", 10, name="few"))
    cursor = Cursor(Mixture(sources, (90.0, 10.0), True, 0), 0)
    drawn = Counter(cursor.next()[0] for _ in range(1000))
    assert drawn == {0: 900, 1: 100}


def test_weights_are_shares_of_tokens():
    sources = (TicksSource("train", 100, name="long"), TicksSource("train", 100, name="short"))
    cursor = Cursor(Mixture(sources, (3.0, 1.0), False, 0), 0)
    for _ in range(4000):
        source, _ = cursor.next()
        cursor.count(source, 50 if source == 0 else 5)
    assert cursor.tokens[0] / sum(cursor.tokens) == pytest.approx(0.75, abs=0.005)


def test_lanes_come_to_a_source_of_long_documents_in_different_of_their_first_rows():
    sources = tuple(TicksSource("train", 500, name=name) for name in ("short", "shorter", "long"))
    mixture = Mixture(sources, (1.0, 1.0, 1.0), False, 0, num_lanes=16, row_tokens=256)
    before = []
    for lane in range(16):
        cursor = Cursor(mixture, lane, length_of=[15, 15, 256].__getitem__)
        while (drawn := cursor.next())[0] != 2:
            cursor.count(drawn[0], 15)
        before.append(sum(cursor.tokens) // 256)
    assert {0, 1} <= set(before) and all(2 < before.count(row) < 14 for row in (0, 1))


@pytest.mark.parametrize("short", [5, 50, 400])
def test_a_source_of_little_weight_has_its_share_from_the_first_on(short):
    """Whatever its documents are as long as: lanes together are never further from it than by some documents."""
    sources = (TicksSource("train", 500, name="many"), TicksSource("train", 500, name="few"))
    mixture = Mixture(sources, (99.0, 1.0), False, 0, num_lanes=16, row_tokens=2048)
    lengths = [100, short]
    lanes = [Cursor(mixture, lane, length_of=lengths.__getitem__) for lane in range(16)]
    for _ in range(2000):
        for lane in lanes:
            source, _ = lane.next()
            lane.count(source, lengths[source])
        tokens = [sum(lane.tokens[source] for lane in lanes) for source in (0, 1)]
        # Each lane has met it when it knows its length, at the latest when that of the others would have been due.
        assert abs(tokens[1] - sum(tokens) / 100) <= 16 * max(short, 128)


def test_what_is_longer_than_others_waits_and_is_looked_up_once():
    sources = tuple(TicksSource("train", 50, name=name) for name in ("many", "long"))
    asked = []
    cursor = Cursor(
        Mixture(sources, (99.0, 1.0), False, 0, row_tokens=512), 0, length_of=lambda i: asked.append(i) or 500
    )
    before = 0
    while cursor.next()[0] == 0:
        cursor.count(0, 16)
        before += 16
    assert before == pytest.approx(0.5 * 500 * 99, rel=0.05)  # the middle of its first document
    assert asked == [0, 1]


def test_a_lane_of_an_older_version_holds_what_it_has_not_met_to_be_as_long_as_a_row():
    sources = tuple(TicksSource("train", 50, name=name) for name in ("many", "few"))
    cursor = Cursor(Mixture(sources, (99.0, 1.0), False, 0, row_tokens=512), 0, length_of=lambda source: 1 / 0)
    cursor.load({"draws": [1, 0], "tokens": [16, 0], "fruitless": [0, 0], "given": [1, 0]})
    while cursor.next()[0] == 0:
        cursor.count(0, 16)
    assert cursor.tokens[0] == pytest.approx(0.5 * 512 * 99, rel=0.05)
    assert cursor.state()["looks"] is False


@pytest.mark.parametrize(("size", "most"), [(7, 100), (100, 7), (10, 10)])
def test_a_mixture_read_once_gives_distinct_rows_and_ends(size, most):
    mixture = Mixture((TicksSource("train", size),), (1.0,), True, 0, once=most, num_lanes=3)
    rows = []
    for lane in range(3):
        cursor = Cursor(mixture, lane)
        while (drawn := cursor.next()) is not None:
            rows.append(mixture.row(*drawn))
    assert len(rows) == len(set(rows)) == min(size, most)


def test_a_fruitless_draw_counts_as_a_document_of_mean_length():
    sources = (TicksSource("train", 100, name="bad"), TicksSource("train", 100, name="good"))
    cursor = Cursor(Mixture(sources, (1.0, 1.0), False, 0), 0)
    for _ in range(1000):
        source, _ = cursor.next()
        cursor.count(source, 0 if source == 0 else 30)
    assert cursor.fruitless[0] == cursor.draws[0] == pytest.approx(500, abs=1)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(0, 59))
def test_the_order_goes_on_from_a_state(lengths, stop):
    mixture = Mixture((TicksSource("train", 9), TicksSource("train", 4, name="few")), (1.0, 3.0), False, 0, num_lanes=2)
    whole, resumed = Cursor(mixture, 0), Cursor(mixture, 0)
    for number, length in enumerate(lengths):
        if number == stop:
            state = json.loads(json.dumps(resumed.state()))
            resumed = Cursor(mixture, 0)
            resumed.load(state)
        drawn = whole.next()
        assert resumed.next() == drawn
        whole.count(drawn[0], length)
        resumed.count(drawn[0], length)
    assert resumed.state() == whole.state()


def test_a_state_of_an_old_checkpoint_has_no_fruitless_draws():
    cursor = Cursor(Mixture((TicksSource("train", 9),) * 2, (1.0, 3.0), False, 0), 0)
    cursor.load({"draws": [3, 4], "tokens": [90, 100]})
    counts = {"draws": [3, 4], "tokens": [90, 100], "fruitless": [0, 0], "given": [3, 4]}
    assert cursor.state() == {**counts, "looks": False}


def test_every_row_of_a_long_source_in_blocks_comes_once():
    mixture = Mixture((Blocked("train", 700),), (1.0,), True, 5, num_lanes=3)
    assert sorted(mixture.row(0, draw) for draw in range(700)) == list(range(700))


@pytest.mark.parametrize("size", [1, 255, 256, 70_000])
def test_the_order_is_that_of_wide_numbers_so_that_old_checkpoints_go_on(size):
    mixture = Mixture((TicksSource("train", size),), (1.0,), True, 5)
    for epoch in range(2):
        wide = np.random.Generator(np.random.PCG64([mixture._seed(0), epoch])).permutation(size)
        assert [mixture.row(0, epoch * size + place) for place in range(size)] == wide.tolist()


def test_no_more_than_two_permutations_of_a_source_are_held_and_none_travels():
    mixture = Mixture((TicksSource("train", 50_000), TicksSource("train", 7, name="few")), (1.0, 1.0), True, 0)
    tracemalloc.start()
    try:
        first = [mixture.row(0, draw) for draw in range(0, 500_000, 25_000)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2.5 * 50_000 * 2
    assert [mixture.row(0, draw) for draw in range(0, 500_000, 25_000)] == first
    assert len(pickle.dumps(mixture)) < 1000


def test_a_source_of_little_weight_waits_for_its_turn():
    sources = (TicksSource("train", 99, name="many"), TicksSource("train", 1, name="few"))
    cursor = Cursor(Mixture(sources, (99.0, 1.0), True, 0), 0)
    assert [cursor.next()[0] for _ in range(40)] == [0] * 40


def test_documents_that_are_read_once_are_spread_over_the_source():
    mixture = Mixture.read_once([TicksSource("train", 100)], 7)
    assert [mixture.row(0, draw) for draw in range(7)] == spread(100, 7).tolist()
    mixture = Mixture.read_once([TicksSource("train", 100)], 7, even=True)
    assert [mixture.row(0, draw) for draw in range(7)] == [0, 14, 28, 42, 57, 71, 85]


def test_rows_of_blocks_that_are_held_at_once_are_mixed():
    order = in_blocks(Blocks(np.arange(600) // 100, 2), 1, 0, np.random.default_rng(0))
    for begin in (0, 200, 400):
        first = order[begin : begin + 100] // 100
        assert len(set(first.tolist())) == 2


@pytest.mark.parametrize("by_documents", [True, False])
def test_what_is_picked_is_what_a_cursor_picks_that_reckons_all_anew(by_documents):
    random = np.random.default_rng(0)
    sources = tuple(TicksSource("train", 50) for _ in range(30))
    mixture = Mixture(sources, tuple(random.uniform(0.01, 1, 30)), by_documents, 0, row_tokens=600)
    lengths = [int(length) if random.random() < 0.9 else None for length in random.integers(1, 500, 30)]
    cursor, picked = Cursor(mixture, 0, length_of=lengths.__getitem__), set()
    for _ in range(300):
        unread = {int(random.integers(30)): random.uniform(0, 3)} if random.random() < 0.3 else {}
        anew = Cursor(mixture, 0, length_of=lengths.__getitem__)
        anew.load(cursor.state())
        source = cursor.pick(unread)
        assert source == anew.pick(unread)
        cursor.draw(source)
        first = cursor.draws[source] == 1 and not by_documents
        given = lengths[source] or 0 if first else int(random.integers(1, 500))
        cursor.count(source, 0 if random.random() < 0.1 and not first else given)
        picked.add(source)
    assert len(picked) > 20
