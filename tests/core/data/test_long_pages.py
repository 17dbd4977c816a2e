"""Documents of texts and media in turn that are longer than a row, cut between their segments."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos import Document, Documents, Media, Text
from kosmos.data import waiting_media
from kosmos.data.feeder import open_feeder
from kosmos.data.ledger_codes import document_of
from kosmos.data.page_document import PageDocument
from kosmos.errors import SampleError
from kosmos.evaluate.by_value import Column
from support.faulty import Numbered
from support.feeds import feed_of


def page(parts, *, is_cut=True, between=None, origin="page", lost=()):
    """Of texts, those in a tuple not learned, and of whole numbers, which are series of that length that hold their
    place."""
    segments = [
        Text(part[0])
        if isinstance(part, tuple)
        else Text(part, train=True)
        if isinstance(part, str)
        else Media("ticks", np.full(part, place, np.float32))
        for place, part in enumerate(parts)
    ]
    return PageDocument(origin, tuple(segments), between=between, is_cut=is_cut, lost=lost)


def last_text(parts):
    return max(place for place, part in enumerate(parts) if isinstance(part, str))


def planned(document, tokens=32, **over):
    return feed_of(Numbered(1), tokens=tokens, **over).planner.plan(document)


def text_of(plan):
    return bytes(token for token in plan.token_ids if token < 256).decode()


def test_it_is_cut_between_segments_and_media_begin_the_next_piece():
    plans = planned(page(["a" * 10, 4, "b" * 10, 4, "c" * 10, 4, "d" * 10]))
    assert [text_of(plan) for plan in plans] == ["a" * 10 + "b" * 10, "c" * 10, "d" * 10]
    assert [[int(m.media.source[0]) for m in plan.media] for plan in plans] == [[1], [3], [5]]
    assert [plan.first_media for plan in plans] == [0, 1, 2]
    assert [plan.origin for plan in plans] == [f"page (segments {part})" for part in ("0-3", "3-5", "5-7")]
    assert [plan.counts for plan in plans] == [True, False, False]
    assert sum(plan.share for plan in plans) == pytest.approx(1)
    ends = [bool(plan.train[-1]) and int(plan.token_ids[-1]) >= 256 for plan in plans]
    assert ends == [False, False, True]  # which is learned of the last alone


def test_every_piece_is_known_to_be_of_its_document():
    plans = planned(page(["a" * 10, 4, "b" * 10, "c" * 80]), tokens=32)
    ends = {re.sub(r"[0-9]+-[0-9]+", "", plan.origin) for plan in plans}
    assert ends == {"page (segments )", "page (segments ) (tokens )"}
    assert {document_of(plan.origin) for plan in (*plans, *planned(page(["c" * 80], origin="page (2)")))} == {
        "page",
        "page (2)",
    }
    row = Column("expected").of_origins(Documents("pages", [Document("page", (Text("?"), Text("!", train=True)))]), 1)
    assert {row(plan.origin) for plan in plans} == {"!"}  # pieces have what their document has


def test_what_fits_is_as_it_was_and_without_the_option_it_is_a_bad_sample():
    parts = ["a" * 10, 4, "b" * 10]
    whole, plain = planned(page(parts)), planned(page(parts, is_cut=False))
    assert [p.token_ids.tolist() for p in whole] == [p.token_ids.tolist() for p in plain]
    assert (whole[0].share, whole[0].is_part) == (1, False)
    with pytest.raises(SampleError, match="takes 43 tokens and a row holds 32"):
        planned(page([*parts, "c" * 15], is_cut=False))


def test_a_medium_that_fits_no_row_costs_the_document_and_a_text_is_cut():
    with pytest.raises(SampleError, match="tokens and a row holds 32"):
        planned(page(["a", 40, "b"]))
    plans = planned(page([4, "a", "b" * 70]))
    assert "".join(text_of(plan).replace("a", "") for plan in plans).count("b") >= 70
    assert all(len(plan) <= 32 for plan in plans)
    assert [len(plan.media) for plan in plans] == [1, 0, 0, 0]


def test_media_that_cannot_be_used_are_left_out_first_and_told_of_once():
    document = page(["a" * 10, 4, "b" * 10, 4, "c" * 10], between="\n")
    plans = planned(document, fates={("plan", 1): "ValueError"})
    assert [text_of(plan) for plan in plans] == ["a" * 10 + "\n" + "b" * 10, "c" * 10]
    assert [len(plan.lost) for plan in plans] == [1, 0]


def test_what_was_left_out_of_a_text_in_pieces_is_told_of_the_first_alone():
    plans = planned(page(["a" * 100, 4, "b"], between="", lost=("gone",)))
    assert len(plans) > 3
    assert [plan.lost for plan in plans] == [("gone",)] + [()] * (len(plans) - 1)


@pytest.mark.parametrize(
    "parts",
    [[8] * 10 + ["what these show"], ["a"] + [8] * 10 + ["b"], [("q" * 40,), 8, 8, "b"], [("q" * 9,), 8, 8, "b" * 9]],
)
def test_text_is_not_learned_without_media_and_questions_that_fill_a_row_in_front_of_it(parts):
    with pytest.raises(
        SampleError, match=r"nothing is learned of its piece \(segments \d.* raise data.tokens_per_pack"
    ):
        planned(page(parts))


def test_media_behind_the_last_text_go_where_they_do_not_fit_beside_it():
    plans = planned(page(["a" * 20, 8, "b", 8, 8, 8, 8, 8], between="", lost=("gone",)))
    assert [(text_of(plan), len(plan.media), plan.share) for plan in plans] == [("a" * 20, 0, 0.5), ("b", 1, 0.5)]
    assert [plan.lost for plan in plans] == [("gone",), ()]


def test_a_question_begins_a_piece_and_one_that_stands_apart_from_an_answer_is_told():
    plans = planned(page([("q",), "a" * 12, ("r" * 4,), 8, "b" * 4]))
    assert [(text_of(plan), plan.is_torn) for plan in plans] == [("q" + "a" * 12, False), ("r" * 4 + "b" * 4, False)]
    plans = planned(page([("q",), "a" * 12, 8, "b" * 12]))
    assert [(text_of(plan), plan.is_torn) for plan in plans] == [("q" + "a" * 12, True), ("b" * 12, True)]


@given(st.lists(st.one_of(st.text("xyz", min_size=1, max_size=50), st.integers(1, 20)), min_size=1, max_size=12))
def test_every_text_and_medium_comes_once_and_every_piece_fits(parts):
    if not any(isinstance(part, str) for part in parts):
        return
    try:
        plans, refused = planned(page(parts)), ""
    except SampleError as error:
        plans, refused = [], str(error)
    if refused:
        assert "nothing is learned of its piece (segments" in refused
        return
    assert all(len(plan) <= 32 and plan.train.any() for plan in plans)
    media, last = [int(m.media.source[0]) for plan in plans for m in plan.media], last_text(parts)
    there = [place for place, part in enumerate(parts) if not isinstance(part, str)]
    assert media == there[: len(media)]
    assert len(media) >= sum(place < last for place in there)  # nothing is learned behind the last text
    learned = sum(int((plan.train & (plan.token_ids < 256)).sum()) for plan in plans)
    assert learned == sum(len(part) for part in parts if isinstance(part, str))


class Pages(Numbered):
    """Of one to eight texts with a series behind each."""

    def document(self, index):
        parts = [f"{index} " * 4, 3 + index % 3] * (1 + index % 8)
        return page([*parts, "end"], origin=f"page {index}")


@pytest.mark.parametrize("held", [waiting_media.MOST_HELD_BYTES, 0])
def test_rows_are_the_same_on_a_resume_and_where_media_are_read_again(monkeypatch, held):
    monkeypatch.setattr(waiting_media, "MOST_HELD_BYTES", held)
    feed = feed_of(Pages(12), lanes=2, tokens=32)

    def seen(steps):
        return [(r.arrays.documents, r.arrays.token_ids.tolist(), r.arrays.media["ticks"].values.tolist())
                for rows in steps for r in rows]  # fmt: skip

    feeder = open_feeder(feed, range(2), workers=0)
    assert not [incident for _ in range(9) for row in feeder.next_step() for incident in row.incidents]
    state = json.loads(json.dumps(feeder.state()))
    then = seen([feeder.next_step() for _ in range(9)])
    again = open_feeder(feed, range(2), workers=0, state=state)
    assert seen([again.next_step() for _ in range(9)]) == then
    assert any("(segments" in document.origin for documents, *_ in then for document in documents)
