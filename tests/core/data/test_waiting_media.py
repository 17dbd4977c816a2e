"""Media that wait in a lane hold no more memory than is allowed, and rows are the same for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kosmos.data import waiting_media
from kosmos.data.document import Blocks, Document, Media, Text
from kosmos.data.lane import Feed, Lane
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner, Route
from kosmos.data.slots import OnePerCell
from kosmos.data.tokenizer import load_tokenizer
from support.ticks import TicksProcessor

NBYTES = 80
"""Of each medium."""


@dataclass
class Series:
    """One series a document, which after some reads of it is another."""

    becomes: tuple[Text | Media, ...] = ()
    name: str = "series"
    reads: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return 50

    def document(self, index: int) -> Document:
        self.reads[index] = self.reads.get(index, 0) + 1
        found = (Media("ticks", np.full(NBYTES // 4, index, np.float32)), Text(f"{index}", train=True))
        return Document(f"series {index}", self.becomes if self.becomes and self.reads[index] > 1 else found)


class Blocked(Series):
    """Documents that are read ten at a time."""

    def blocks(self) -> Blocks:
        return Blocks(np.arange(50) // 10, 2)


def lane_of(source):
    marks = ("<ticks>", "</ticks>")
    planner = Planner(
        load_tokenizer("bytes", marks),
        {"ticks": Route(TicksProcessor(4), "ticks", OnePerCell(), frozenset(marks))},
        40,
        {},
    )
    return Lane(Feed(Mixture((source,), (1.0,), True, 0), planner, 16, ("ticks",)), 0)


def content(lane, rows):
    found = [lane.turn() for _ in range(rows)]
    return [(row.arrays.token_ids.tolist(), row.arrays.media["ticks"].values.tolist(), row.incidents) for row in found]


def held(lane):
    return sum(m.media.source.nbytes for _, plan in lane.pending for m in plan.media if len(m.media.source))


def test_rows_are_the_same_where_media_are_let_go_and_read_again(monkeypatch):
    whole = lane_of(Series())
    expected = content(whole, 30)
    assert held(whole) > 10 * NBYTES
    monkeypatch.setattr(waiting_media, "MOST_HELD_BYTES", 4 * NBYTES)
    lane = lane_of(Series())
    assert content(lane, 15) == expected[:15]
    assert 0 < held(lane) <= 4 * NBYTES
    resumed = lane_of(Series())
    resumed.load(lane.state())
    assert 0 < held(resumed) <= 4 * NBYTES
    assert content(resumed, 15) == expected[15:]


def test_media_are_kept_where_reading_one_reads_its_neighbours(monkeypatch):
    monkeypatch.setattr(waiting_media, "MOST_HELD_BYTES", 4 * NBYTES)
    lane = lane_of(Blocked())
    content(lane, 3)
    assert held(lane) > 10 * NBYTES


def test_a_document_that_is_another_when_it_is_read_again_costs_itself(monkeypatch):
    monkeypatch.setattr(waiting_media, "MOST_HELD_BYTES", 0)
    found = lane_of(Series(becomes=(Text("no series"),))).turn()
    assert found.incidents
    assert all("holds other media than when it was planned" in incident.cause for incident in found.incidents)
