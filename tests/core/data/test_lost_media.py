"""Documents that are learned without media of theirs that cannot be planned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kosmos import Media, Text
from kosmos.data import waiting_media
from kosmos.data.batch import DocumentInfo
from kosmos.data.feeder import open_feeder
from kosmos.data.figures import look_at_all
from kosmos.data.page_document import PageDocument
from kosmos.data.quarantine import Budget, lost_media
from kosmos.errors import SampleError
from kosmos.train.output import RunFolder
from kosmos.train.run import train_model
from support.faulty import Numbered
from support.feeds import feed_of
from support.runs import Listener, rows_of, small_run, ticks_registry


class Pages(Numbered):
    """Three series each, of the row's number and of 1,000 and 2,000 more, with texts in turn."""

    name = "pages"

    def document(self, index):
        series = [np.full(2 + index % 3, index + more, np.float32) for more in (0, 1000, 2000)]
        parts = [part for one in series for part in (Media("ticks", one), Text(f"text {index}", train=True))]
        return PageDocument(f"pages {index}", tuple(parts[:-1]), between="\n", lost=("gone",) * (index == 7))


BROKEN = {("plan", number): "ValueError" for number in (1001, 2, 1002, 3, 1003, 2003)}


def planned(index, **over):
    feed = feed_of(Pages(10), fates=BROKEN, lanes=1, **over)
    (plan,) = feed.planner.plan(Pages(10).document(index))
    text = bytes(token for token in plan.token_ids if token < 256).decode()
    return [media.media.source[0] for media in plan.media], text, plan.lost


def test_the_plan_lacks_media_that_cannot_be_planned_and_texts_stay():
    assert planned(0)[::2] == ([0, 1000, 2000], ())
    media, text, lost = planned(1)
    assert (media, text) == ([1, 2001], "text 1\ntext 1")
    (cause,) = lost
    assert cause.startswith("ticks 2 of 3: ") and "row 1001" in cause
    assert planned(2)[:2] == ([2002], "text 2\ntext 2")
    assert planned(7)[2] == ("gone",)
    with pytest.raises(SampleError, match=r"none of its 3 media can be used; the first: ticks 1 of 3: .*row 3"):
        planned(3)


def test_one_that_breaks_as_it_is_decoded_costs_the_document():
    feed = feed_of(Pages(1), fates={("decode", 1000): "ValueError"}, lanes=1)
    feeder = open_feeder(replace(feed, mixture=replace(feed.mixture, once=10)), range(1), workers=0)
    rows = feeder.next_step()
    assert [i.cause.startswith("ticks 2 of 3: ") for row in rows for i in row.incidents] == [True]
    assert not any(row.arrays.documents for row in rows)


@pytest.mark.parametrize("held", [waiting_media.MOST_HELD_BYTES, 0])
def test_rows_are_the_same_on_a_resume_and_where_media_are_read_again(monkeypatch, held):
    monkeypatch.setattr(waiting_media, "MOST_HELD_BYTES", held)
    feed = feed_of(Pages(10), fates=BROKEN, lanes=2)

    def seen(steps):
        return [(r.arrays.documents, r.arrays.token_ids.tolist(), r.arrays.media["ticks"].values.tolist())
                for rows in steps for r in rows]  # fmt: skip

    feeder = open_feeder(feed, range(2), workers=0)
    first = [feeder.next_step() for _ in range(3)]
    state = json.loads(json.dumps(feeder.state()))
    then = seen([feeder.next_step() for _ in range(4)])
    again = open_feeder(feed, range(2), workers=0, state=state)
    assert seen([again.next_step() for _ in range(4)]) == then
    told = lost_media(document for rows in first for row in rows for document in row.arrays.documents)
    assert {medium.origin for medium in told} <= {"pages 1", "pages 2", "pages 7"}
    assert {incident.origin for rows in first for row in rows for incident in row.incidents} <= {"pages 3"}


def test_figures_count_them():
    figures = look_at_all(feed_of(Pages(10), fates=BROKEN, lanes=1)).figures["numbered"]
    assert (figures.looked_at, figures.lost) == (9, 4)
    assert figures.first_lost.startswith("pages ")


def test_a_source_is_told_of_once():
    budget = Budget(0.5)
    assert [*budget.warnings()] == []
    for number in (1, 2):
        budget.note_lost(lost_media([DocumentInfo(f"pages {number}", "pages", ("ticks",), 0, 1, lost=("gone",))]))
        told = [*budget.warnings()]
        assert len(told) == (number == 1)
        assert all("pages: media that cannot be used are left out" in t and "pages 1: gone" in t for t in told)


class Lossy(Pages):
    """Of which the second series of some are empty, which the processor refuses."""

    def document(self, index):
        document = super().document(index)
        parts = list(document.segments)
        if index % 4 == 1:
            parts[2] = Media("ticks", np.zeros(0, np.float32))
        return replace(document, segments=tuple(parts), lost=())


def test_a_run_keeps_and_tells_them_and_counts_no_bad_sample(tmp_path: Path) -> None:
    said = Listener()
    config = small_run(tmp_path / "run", train={"steps": 3})
    train_model(config, registry=ticks_registry(), sources=[Lossy(24)], reporter=said)
    rows = rows_of(tmp_path / "run" / "quarantine.jsonl")
    assert rows and {row["code"] for row in rows} == {"medium"}
    assert len({row["origin"] for row in rows}) == len(rows)
    assert all(row["cause"].startswith("ticks 2 of 3: ") for row in rows)
    assert RunFolder(tmp_path / "run").count_bad() == 0
