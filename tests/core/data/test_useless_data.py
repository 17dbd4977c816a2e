"""Data of which much or all cannot be used: what they cost others, and that nobody waits for ever."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from kosmos.data.feeder import open_feeder
from kosmos.errors import DataError
from support.faulty import Numbered
from support.feeds import feed_of


def test_a_bad_source_of_great_weight_leaves_the_others_their_share():
    bad = Numbered(300, {("read", row): "ValueError" for row in range(300)}, name="bad")
    for workers in (0, 1):
        feed = feed_of(bad, Numbered(300), weights=(10.0, 1.0), lanes=1)
        with closing(open_feeder(feed, [0], workers=workers)) as feeder:
            rows = [feeder.next_step() for _ in range(6)]
            state = feeder.state()
        drawn, fruitless = state["lanes"]["0"]["draws"], state["lanes"]["0"]["fruitless"]
        assert fruitless == [drawn[0], 0]
        assert drawn[0] / drawn[1] == pytest.approx(10, rel=0.2)
        assert all(row.arrays.documents for step in rows for row in step)


def test_data_that_are_useless_end_the_run_after_a_bounded_number_of_samples():
    feed = feed_of(Numbered(10**5, BadEverywhere()), lanes=1)
    said = r"no sample .* \(2000 were tried in turn\); the last: .*Numbered.document raised"
    with closing(open_feeder(feed, [0], workers=0)) as feeder, pytest.raises(DataError, match=said):
        feeder.next_step()


class BadEverywhere(dict):
    def get(self, key, default=None):
        return "ValueError"


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_read_once_comes_to_its_end_however_many_rows_in_turn_are_broken(workers):
    broken = {("decode", row): "ValueError" for row in range(80)}
    feed = feed_of(Numbered(90), fates=broken, lanes=1, tokens=26)
    feeder = open_feeder(replace(feed, mixture=replace(feed.mixture, once=90)), [0], workers=workers)
    rows = []
    while step := feeder.next_step():
        rows += step
    feeder.close()
    assert sum(len(row.arrays.documents) for row in rows) == 10
    assert sum(len(row.incidents) for row in rows) == 80
