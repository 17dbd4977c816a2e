from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kosmos.data.feeder import open_feeder
from kosmos.data.lane import PLAN, Feed
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner, Route
from kosmos.data.slots import OnePerCell
from kosmos.data.tokenizer import load_tokenizer
from kosmos.errors import DataError
from support.ticks import TicksProcessor, TicksSource


def feed_of(*sources, lanes=4, processor=None, once=None, tokens=128):
    marks = ("<ticks>", "</ticks>")
    route = Route(processor or TicksProcessor(4), "ticks", OnePerCell(), frozenset(marks))
    planner = Planner(load_tokenizer("bytes", marks), {"ticks": route}, tokens, {})
    mixture = Mixture(sources, tuple(1.0 for _ in sources), True, 0, once=once, num_lanes=lanes)
    return Feed(mixture, planner, 16, ("ticks",))


def take(feed, lanes, steps, workers=0, state=None):
    feeder = open_feeder(feed, lanes, workers=workers, state=state)
    try:
        rows = [feeder.next_step() for _ in range(steps)]
        return rows, feeder.state()
    finally:
        feeder.close()


def origins(rows):
    return [[d.origin for d in row.arrays.documents] for step in rows for row in step]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_rows_are_the_same_with_any_number_of_workers(workers):
    feed = feed_of(TicksSource("train"))
    alone, state = take(feed, range(4), 5)
    rows, same_state = take(feed, range(4), 5, workers)
    assert state == same_state
    for a, b in zip((r for step in alone for r in step), (r for step in rows for r in step), strict=True):
        assert np.array_equal(a.arrays.token_ids, b.arrays.token_ids)
        assert np.array_equal(a.arrays.media["ticks"].values, b.arrays.media["ticks"].values)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_together_take_the_same_documents_in_the_same_step(world_size):
    feed = feed_of(TicksSource("train"))
    whole, _ = take(feed, range(4), 4)
    shares = [take(feed, range(rank, 4, world_size), 4)[0] for rank in range(world_size)]
    for step in range(4):
        assert sorted(origins([whole[step]])) == sorted(o for share in shares for o in origins([share[step]]))


@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 1), (1, 0)])
def test_a_state_goes_on_exactly_with_another_number_of_workers(before, after):
    feed = feed_of(TicksSource("train"))
    whole, end = take(feed, range(4), 6)
    _, state = take(feed, range(4), 3, before)
    rest, same_end = take(feed, range(4), 3, after, state)
    assert origins(rest) == origins(whole[3:])
    assert end == same_end


def test_no_document_is_drawn_twice_or_never_in_an_epoch():
    source = TicksSource("train", 100)
    rows, state = take(feed_of(source), range(4), 12)
    seen = [o for row in origins(rows) for o in row]
    row_of = feed_of(source).mixture.row
    waiting = [f"ticks {row_of(s, d)}" for lane in state["lanes"].values() for s, d, _ in lane["pending"]]
    drawn = sum(sum(lane["draws"]) for lane in state["lanes"].values())
    assert len(seen) + len(waiting) == drawn
    counts = np.bincount([int(o.split()[1]) for o in seen + waiting], minlength=100)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_sample_costs_itself_alone(workers):
    rows, _ = take(feed_of(TicksSource("train", 100, broken=(3, 50))), range(4), 20, workers)
    incidents = [i for step in rows for row in step for i in row.incidents]
    assert {i.origin for i in incidents} == {"ticks 3", "ticks 50"}
    assert all(i.cause == "holds values that are no numbers" and i.code == "sample" for i in incidents)
    assert len({o for row in origins(rows) for o in row}) == 98


def test_a_processor_that_lies_about_its_count_is_named():
    rows, _ = take(feed_of(TicksSource("train", 100), TicksSource("train", 4, name="liar"), lanes=1), [0], 1)
    assert not rows[0][0].incidents
    liar = feed_of(TicksSource("train", 100), processor=TicksProcessor(4, lie=1))
    with pytest.raises(DataError, match=r"TicksProcessor planned \d+ cells .* decoded \d+") as error:
        take(liar, range(4), 1)
    assert "ticks " in str(error.value)


def test_a_sample_that_kills_its_decoder_costs_itself_alone():
    feed = feed_of(TicksSource("train", 100, deadly=(7, 8, 60)))
    rows, state = take(feed, range(4), 20, workers=1)
    incidents = [i for step in rows for row in step for i in row.incidents]
    assert {i.origin for i in incidents} == {"ticks: row 7", "ticks: row 8", "ticks: row 60"}
    assert "decoder died" in incidents[0].cause
    assert len({o for row in origins(rows) for o in row}) == 97
    assert {tuple(entry[:3]) for entry in state["deadly"]} == {(0, 7, PLAN), (0, 8, PLAN), (0, 60, PLAN)}


def test_a_mixture_read_once_ends_with_every_document_seen():
    source = TicksSource("train", 37)
    for workers in (0, 1, 3):
        rows, _ = take(feed_of(source, once=100, lanes=1), [0], 12, workers)
        assert rows[-1] == []
        assert sorted(o for row in origins(rows) for o in row) == sorted(f"ticks {i}" for i in range(37))


def test_data_of_which_nothing_can_be_used_end_the_run_with_the_last_cause():
    with pytest.raises(DataError, match="holds values that are no numbers"):
        take(feed_of(TicksSource("train", 20, broken=tuple(range(20)))), range(4), 2, workers=1)


def test_cells_stay_within_their_budget():
    feed = feed_of(TicksSource("train"))
    feed = replace(feed, planner=replace(feed.planner, max_cells={"ticks": 20}))
    rows, _ = take(feed, range(4), 5)
    assert all(len(row.arrays.media["ticks"].values) <= 20 for step in rows for row in step)
