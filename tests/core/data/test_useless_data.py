"""Data of which much or all cannot be used: what they cost others, and that nobody waits for ever."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from kosmos import make_run, open_sources
from kosmos.data.feeder import open_feeder
from kosmos.data.file_state import CHANGED
from kosmos.data.quarantine import Incident, UselessData
from kosmos.plugins import load_core
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


@pytest.mark.parametrize("workers", [0, 1])
def test_data_that_are_useless_end_the_run_after_a_bounded_number_of_samples(workers):
    feed = feed_of(Numbered(10**5, BadEverywhere()), lanes=1)
    said = r"no sample .* \(2000 were tried in turn\); the last: .*Numbered.document raised"
    with closing(open_feeder(feed, [0], workers=workers)) as feeder, pytest.raises(UselessData, match=said) as raised:
        feeder.next_step()
    assert len({incident.origin for incident in raised.value.incidents}) == 2000


def test_what_was_bad_of_the_rows_of_other_lanes_is_told_too():
    feed = feed_of(Numbered(40, {("read", row): "ValueError" for row in range(20)}), lanes=2)
    with closing(open_feeder(feed, [0, 1], workers=0)) as feeder:
        feeder.lanes[1].feed = feed_of(Numbered(40, BadEverywhere()), lanes=2)
        with pytest.raises(UselessData) as raised:
            feeder.next_step()
    of_first = {incident.origin for incident in feeder.step[0].incidents}
    assert of_first
    assert of_first < {incident.origin for incident in raised.value.incidents}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.txt"])
def test_of_a_file_that_became_shorter_it_is_said_that_it_was_changed(tmp_path, name):
    path = tmp_path / name
    path.write_text("\n".join(f'{{"text": "line {number:04}"}}' for number in range(400)))
    (source,) = open_sources(make_run({"modalities": [], "data": {"sources": [str(path)]}}), load_core(), "train")
    path.write_text("\n\n\n")
    said = r"the last: .*: no row is here any more: the file was changed"
    feeder = open_feeder(feed_of(source, lanes=1), [0], workers=0)
    with closing(feeder), pytest.raises(UselessData, match=said) as raised:
        feeder.next_step()
    assert any(CHANGED in incident.cause for incident in raised.value.incidents)


def test_that_a_file_was_changed_is_said_rather_than_what_is_read_there_now():
    bad = [Incident(f"a.jsonl:{n}", "a", "sample", CHANGED if n == 2 else "not JSON") for n in range(5)]
    assert str(UselessData.of("nothing", bad)) == f"nothing; the last: a.jsonl:2: {CHANGED}"


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
