"""Samples that cannot be used, and draws, as the trainer is told of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kosmos import Document, Text
from kosmos.data import supervisor
from kosmos.data.feeder import open_feeder
from kosmos.data.quarantine import Budget, Incident, incident_row
from kosmos.errors import QuarantineFull
from kosmos.train.saved_state import check_types
from support.faulty import Numbered, Plain
from support.feeds import feed_of


def steps(feed, count, workers=0, state=None):
    feeder = open_feeder(feed, range(feed.mixture.num_lanes), workers=workers, state=state)
    try:
        return [feeder.next_step() for _ in range(count)], feeder.state()
    finally:
        feeder.close()


def once(feed, most=10_000):
    return replace(feed, mixture=replace(feed.mixture, once=most))


def test_many_bad_samples_that_are_not_in_turn_end_nothing():
    bad = {("read", row): "ValueError" for row in range(0, 20, 2)}
    feed = replace(feed_of(Numbered(20, bad), lanes=1), look_ahead=400)
    rows, _ = steps(feed, 1)
    assert len(rows[0][0].incidents) > 140  # more than are borne in turn


def test_scoring_comes_to_its_end_however_many_samples_are_bad():
    size = 2_100
    bad = {("read", row): "ValueError" for row in range(size)}
    rows, _ = steps(once(feed_of(Numbered(size, bad), lanes=1)), 2)
    assert [len(row.incidents) for step in rows for row in step] == [size]


@pytest.mark.parametrize("what", ["plan", "decode"])
@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_wrong_at_the_end_of_a_mixture_read_once_is_told(what, workers):
    fates = {(what, row): "ValueError" for row in range(3)}
    rows, _ = steps(once(feed_of(Numbered(3), fates=fates, lanes=1)), 4, workers)
    assert sorted(i.origin for step in rows for row in step for i in row.incidents) == [
        f"numbered {n}" for n in range(3)
    ]
    assert rows[-1] == []


def test_pieces_of_a_long_text_without_a_trained_token_take_no_room():
    class Long(Plain):
        def document(self, row):
            return Document(f"long {row}", (Text("q" * 500), Text("a", train=True)))

    rows, _ = steps(feed_of(Long(5), lanes=1), 3)
    assert all((row.arrays.labels != -100).any() and len(row.arrays.token_ids) < 128 * 3 for s in rows for row in s)
    for s in rows:
        for row in s:
            for d in row.arrays.documents:
                assert (row.arrays.labels[d.start : d.start + d.length] != -100).any()


@pytest.mark.parametrize("what", ["plan", "decode"])
def test_each_draw_and_each_incident_is_told_once(what):
    fates = {(what, row): "ValueError" for row in range(40) if row % 20 > 3}
    rows, state = steps(feed_of(fates=fates, lanes=1, tokens=32), 12)
    told = [row for step in rows for row in step]
    lane = state["lanes"]["0"]
    assert sum(row.drawn for row in told) == sum(lane["draws"])
    waiting = len(lane["pending"])
    seen = sum(len(row.arrays.documents) for row in told)
    assert seen + waiting + sum(len(row.incidents) for row in told) == sum(lane["draws"])


def test_deaths_with_rows_between_them_are_not_in_turn(monkeypatch):
    monkeypatch.setattr(supervisor, "MAX_DEATHS", 3)
    fates = {("decode", row): "SIGSEGV" for row in (3, 13, 23, 33)}
    _, state = steps(feed_of(fates=fates, lanes=1), 30, 1)
    assert len(state["deadly"]) == 4


def test_the_budget_of_bad_samples_is_what_is_borne():
    bad = [Incident("a", "s", "sample", "c")]
    budget = Budget(0.5)
    budget.add(99, bad * 99)  # a share says nothing yet
    budget = Budget(0.5)
    budget.add(100, bad * 50)  # no more than is allowed
    budget = Budget(0.5)
    with pytest.raises(QuarantineFull, match="51 of 100 samples were bad"):
        budget.add(100, bad * 51)


def test_a_source_that_gives_bad_samples_alone_is_not_borne_beside_larger_ones():
    def bad(first, last, times=1):
        return [Incident(f"a:{number}", "small", "sample", "c") for number in range(first, last)] * times

    few = bad(0, 3, times=60)  # of three samples, again and again
    for share, more, useful in (
        (0.5, bad(50, 90), ()),
        (1.0, bad(50, 190), ()),
        (0.5, bad(50, 190), {"small"}),
        (0.5, few, ()),
    ):
        budget = Budget(share)
        budget.add(900, bad(0, 50), {"large"})
        again = Budget(share)
        again.load(json.loads(json.dumps(budget.state())))
        again.add(900, more, {"large", *useful})
    budget = Budget(0.5)
    budget.add(900, bad(0, 60), {"large"})
    with pytest.raises(
        QuarantineFull, match="small: none of the first 100 samples can be used; the last: a:99: c; mend"
    ):
        budget.add(900, bad(60, 100), {"large"})


def test_a_decoder_that_ends_its_process_is_to_blame():
    fates = {("decode", 3): "exit"}
    _, state = steps(feed_of(fates=fates, lanes=1), 12, 1)
    assert "exit status 7" in state["deadly"][0][3]


def test_many_bad_samples_are_told_of_when_their_share_has_doubled():
    bad, budget, told = [Incident("a:1", "s", "sample", "it is cut short")], Budget(0.5), []
    for share in (0, 0, 20, 0, 50, 50, 50):
        budget.add(100, bad * share)
        told.append(budget.warning())
    assert [line and line[:24] for line in told] == [
        None,
        None,
        "20 of 300 samples so far",
        None,
        "70 of 500 samples so far"[:24],
        None,
        None,
    ]
    assert (
        told[2]
        == "20 of 300 samples so far were bad and are left out (quarantine.jsonl); the last: a:1: it is cut short"
    )


def test_a_piece_that_is_broken_counts_as_a_part_of_its_document():
    pieces = [Incident(f"a:{n // 4} (segments {n % 4}-9)", "s", "sample", "c", 0.25) for n in range(4 * 20)]
    budget = Budget(0.2, {"s": 100})
    budget.add(100, pieces)
    assert (budget.bad, len(budget.useless["s"])) == (20, 20)
    assert "20 of 100 samples" in (budget.warning() or "")
    with pytest.raises(QuarantineFull, match="21 of 100 samples were bad"):
        budget.add(0, [Incident("a:30 (segments 2-9)", "s", "sample", "c", 0.25)])
    assert "share" not in incident_row(pieces[0], 1)


def test_parts_of_documents_that_are_bad_are_saved_and_gone_on_with():
    whole, third = (Incident("a:1", "s", "sample", "c", share) for share in (1.0, 1 / 3))
    for incidents, saved in (([whole], 1), ([whole, third], 4 / 3)):
        budget, other = Budget(0.5), Budget(0.5)
        budget.add(9, incidents)
        state = json.loads(json.dumps(budget.state()))
        check_types({"budget": state})
        other.load(state)
        assert (state["bad"], type(state["bad"])) == (saved, type(saved)) and other.state() == state
