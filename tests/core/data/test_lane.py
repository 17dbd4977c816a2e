"""Rows of one lane: full, of all sources, and of nothing that cannot be used."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kosmos.data.document import Document, Mark, Media, Text
from kosmos.data.lane import Empty, Feed, Lane, Row
from kosmos.data.long_texts import MOST_OPEN
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner, Route
from kosmos.data.slots import OnePerCell
from kosmos.data.tokenizer import load_tokenizer
from support.texts import Texts
from support.ticks import TicksProcessor, TicksSource


@dataclass
class Given:
    """Documents as they are."""

    documents: list[Any]
    name: str = "given"

    def __len__(self) -> int:
        return len(self.documents)

    def document(self, index: int) -> Document:
        return Document(f"{self.name} {index}", self.documents[index])


def lanes_of(*sources, weights=None, tokens=512, look_ahead=128, lanes=1, once=None):
    marks = ("<ticks>", "</ticks>")
    route = Route(TicksProcessor(4), "ticks", OnePerCell(), frozenset(marks))
    planner = Planner(load_tokenizer("bytes", marks), {"ticks": route}, tokens, {})
    shares = weights or tuple(float(len(source)) for source in sources)
    mixture = Mixture(sources, shares, weights is None, 0, once=once, num_lanes=lanes)
    return [Lane(Feed(mixture, planner, look_ahead, ("ticks",)), number) for number in range(lanes)]


def tokens_by_source(row):
    found: dict[str, int] = {}
    for document in row.arrays.documents:
        found[document.source] = found.get(document.source, 0) + document.length
    return found


@pytest.mark.parametrize(("tokens", "least", "most"), [(4096, 2, 12), (4096, 20, 60), (512, 1, 4), (512, 10, 200)])
def test_rows_are_full_however_short_the_documents(tokens, least, most):
    lengths = np.random.default_rng(0).integers(least, most, 5000).tolist()
    (lane,) = lanes_of(Texts("short", lengths), tokens=tokens)
    rows = [lane.turn() for _ in range(20)]
    useful = sum(sum(tokens_by_source(row).values()) for row in rows)
    assert useful > 0.99 * 20 * tokens


def test_a_look_ahead_of_one_gives_each_document_a_row():
    (lane,) = lanes_of(Texts("short", [5, 9, 30]), tokens=64, look_ahead=1)
    assert [len(lane.turn().arrays.documents) for _ in range(9)] == [1] * 9


def test_a_book_does_not_keep_the_others_waiting():
    (lane,) = lanes_of(Texts("short", [40] * 500), Texts("book", [200_000] * 3), weights=(1.0, 1.0), tokens=256)
    rows = [lane.turn() for _ in range(100)]
    sources = [source for row in rows for source in tokens_by_source(row)]  # a piece of the book fills a row
    assert all(len(set(sources[n : n + 4])) == 2 for n in range(len(sources) - 4))
    book = sum(tokens_by_source(row).get("book", 0) for row in rows)
    assert book / sum(sum(tokens_by_source(row).values()) for row in rows) == pytest.approx(0.5, abs=0.05)
    assert len(json.dumps(lane.state())) < 3_000


def test_books_do_not_keep_a_source_of_little_weight_waiting():
    sources = Texts("short", [40] * 500), Texts("book", [200_000] * 8)
    for lane in lanes_of(*sources, weights=(1.0, 9.0), tokens=256, lanes=8):
        rows = [tokens_by_source(lane.turn()) for _ in range(200)]
        short = [row.get("short", 0) for row in rows]
        assert all(sum(short[n : n + 50]) == pytest.approx(0.1 * 50 * 256, rel=0.5) for n in range(0, 200, 50))


def test_without_weights_a_book_counts_by_what_was_read_of_it():
    (lane,) = lanes_of(Texts("short", [40] * 900), Texts("book", [25_000] * 100), tokens=256)  # a book has 98 pieces
    drawn = [0, 0]
    for _ in range(1000):
        lane.turn()
        drawn = lane.cursor.draws
    assert drawn[0] / drawn[1] == pytest.approx(9, rel=0.35)
    assert sum(map(len, lane.texts.by_source.values())) <= MOST_OPEN


def test_pieces_of_a_long_text_come_in_order_and_all_once():
    (lane,) = lanes_of(Texts("book", [3_000, 50, 2_000]), tokens=256, once=3)
    whole: dict[str, list[int]] = {}
    while (row := lane.turn()) is not None:
        for document in row.arrays.documents:
            begin = int(document.origin.rpartition("(tokens ")[2].split("-")[0]) if "(" in document.origin else 0
            whole.setdefault(document.origin.split(" (")[0], []).append(begin)
    assert {name: len(begins) for name, begins in whole.items()} == {"book 0": 12, "book 1": 1, "book 2": 8}
    assert all(len(set(begins)) == len(begins) for begins in whole.values())


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 900), min_size=1, max_size=12), st.lists(st.integers(1, 60), min_size=1, max_size=12),
    st.booleans(), st.integers(0, 11), st.integers(1, 3),
)  # fmt: skip
def test_a_lane_goes_on_exactly_from_its_state(long, short, weighted, stop, lanes):
    def fresh():
        weights = (1.0, 2.0) if weighted else None
        made = lanes_of(
            Texts("long", long), Texts("short", short), weights=weights, tokens=64, look_ahead=6, lanes=lanes
        )
        return made[-1]

    whole, resumed = fresh(), fresh()
    for number in range(12):
        if number == stop:
            state = json.loads(json.dumps(resumed.state()))
            resumed = fresh()
            resumed.load(state)
        one, other = whole.turn(), resumed.turn()
        assert [d.origin for d in one.arrays.documents] == [d.origin for d in other.arrays.documents]
        assert np.array_equal(one.arrays.token_ids, other.arrays.token_ids)
        assert one.state == other.state


def test_lanes_come_to_a_rare_source_one_after_another():
    lanes = lanes_of(
        Texts("common", [100] * 2000), Texts("rare", [100] * 200), weights=(0.98, 0.02), tokens=1024, lanes=16
    )
    by_step = [sum(tokens_by_source(lane.turn()).get("rare", 0) for lane in lanes) / (16 * 1024) for _ in range(150)]
    assert sum(by_step) / 150 == pytest.approx(0.02, rel=0.2)
    assert max(by_step[20:]) < 0.1
    assert np.mean([share == 0 for share in by_step[20:]]) < 0.15


WRONG = [
    ((Text("a\ud800", train=True),), "text is not valid Unicode (a lone surrogate, U+D800, is its character 2)"),
    ((Text(None, train=True),), "a text of the document: expected a string, got NoneType"),
    ((Text(b"abc", train=True),), "a text of the document: expected a string, got bytes"),
    ((Mark("<zz>"), Text("x", train=True)), "mark '<zz>': "),
    (("hello", Text("x", train=True)), "the segments of a Document hold 'hello'; write Text('hello')"),
    (None, "Given.document: expected a tuple of segments, got NoneType"),
    ((Text("x", train=True), Media("smell", b"")), "holds smell, which is not among the modalities"),
]


@pytest.mark.parametrize(("segments", "cause"), WRONG)
def test_a_malformed_document_of_a_plugin_costs_itself(segments, cause):
    (lane,) = lanes_of(Given([segments, (Text("good", train=True),)]), tokens=32, look_ahead=2)
    row = lane.turn()
    assert {document.origin for document in row.arrays.documents} == {"given 1"}
    assert {incident.origin for incident in row.incidents} <= {"given 0", "given: row 0"}
    assert cause in row.incidents[0].cause


def test_a_turn_of_broken_documents_alone_is_no_row():
    class Broken(TicksProcessor):
        def decode(self, media, plan):
            raise ValueError("broken")

    lane = lanes_of(TicksSource("train"), tokens=64, look_ahead=1)[0]
    lane.feed.planner.routes["ticks"] = Route(Broken(4), "ticks", OnePerCell(), frozenset(("<ticks>", "</ticks>")))
    turns = [lane.turn() for _ in range(20)]
    assert all(isinstance(turn, Empty) for turn in turns)
    assert not any(isinstance(turn, Row) for turn in turns)
    assert all(turn.incidents for turn in turns)
