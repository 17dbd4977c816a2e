"""Media in archives are read by who needs them: headers once, what is in them by who decodes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kosmos import Document, FileSpan, Grid, Media, MediaPlan, SampleError, StoredMedia, Text
from kosmos.data import document
from kosmos.data.decoding import decode_cells
from kosmos.data.lane import Feed, Lane
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner, Route
from kosmos.data.slots import OnePerCell
from kosmos.data.tokenizer import load_tokenizer

MARKS = ("<ticks>", "</ticks>")
NBYTES = 8
FILES = 40


class Letters:
    """A cell for each byte, or for the first four of them, whatever stands there."""

    cell_shape = (1,)
    cell_dtype = np.dtype(np.uint8)

    def __init__(self, *, reads_headers):
        self.reads_headers = reads_headers

    def plan(self, media):
        count = len(media.source) if self.reads_headers else 4
        return MediaPlan(("<ticks>", Grid(count, 1, 1), "</ticks>"))

    def decode(self, media, plan):
        return np.frombuffer(media.source, np.uint8)[: plan.cells].copy()[:, None]


@dataclass
class Archive:
    """Files of one size that lie in one behind another."""

    path: Path
    name: str = "archive"

    def __len__(self):
        return FILES

    def document(self, index):
        medium = StoredMedia("ticks", FileSpan(self.path, NBYTES * index, NBYTES))
        return Document(f"archive {index}", (medium, Text(f"{index}", train=True)))


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "archive"
    path.write_bytes(bytes(range(1, FILES + 1)) * NBYTES)
    return Archive(path)


@pytest.fixture
def read(monkeypatch):
    """Where what was read begins."""
    begins = []
    real = document.read_bytes
    monkeypatch.setattr(
        document, "read_bytes", lambda path, begin, *more: (begins.append(begin), real(path, begin, *more))[1]
    )
    return begins


def planner_of(*, reads_headers):
    route = Route(Letters(reads_headers=reads_headers), "ticks", OnePerCell(), frozenset(MARKS))
    return Planner(load_tokenizer("bytes", MARKS), {"ticks": route}, 40, {})


def test_a_header_is_read_once_and_a_medium_that_was_read_for_it_waits(archive, read):
    planner = planner_of(reads_headers=True)
    held = [planner.plan(archive.document(3))[0].held for _ in range(2)]
    assert held == [NBYTES, 0]
    assert read == [3 * NBYTES]


@pytest.mark.parametrize("reads_headers", [True, False])
def test_what_is_decoded_is_what_lies_there(archive, reads_headers):
    planner = planner_of(reads_headers=reads_headers)
    expected = list(archive.path.read_bytes()[2 * NBYTES : 3 * NBYTES])[: NBYTES if reads_headers else 4]
    for _ in range(2):  # the second time with a plan that was kept
        [medium] = planner.plan(archive.document(2))[0].media
        assert decode_cells(medium, planner.routes["ticks"].processor).ravel().tolist() == expected


def test_of_plans_that_hang_on_no_file_only_what_is_decoded_is_read(archive, read):
    feed = Feed(Mixture((archive,), (1.0,), True, 0), planner_of(reads_headers=False), 16, ("ticks",))
    one, other, alone = Lane(feed, 0), Lane(feed, 0), Lane(feed, 0)
    rows = []
    for turn in range(8):  # two workers that share a lane
        mine, theirs = (one, other) if turn % 2 == 0 else (other, one)
        rows.append(mine.turn())
        assert theirs.skip()
    media = sum(row.arrays.media["ticks"].grids.shape[0] for row in rows)
    assert len(read) == media
    for row in rows:
        values = alone.turn().arrays.media["ticks"].values
        assert np.array_equal(row.arrays.media["ticks"].values, values)


def test_a_file_that_has_become_shorter_costs_the_media_that_are_lost(archive):
    planner = planner_of(reads_headers=False)
    [medium] = planner.plan(archive.document(5))[0].media
    with archive.path.open("rb+") as file:
        file.truncate(5 * NBYTES + 3)
    with pytest.raises(SampleError, match="archive breaks off in it: 3 of 8 bytes are there"):
        decode_cells(medium, planner.routes["ticks"].processor)


def test_a_medium_named_by_a_str_is_refused_as_it_is_made():
    with pytest.raises(TypeError, match=r"the source is a string; write a file as Path\('a\.jpg'\)"):
        Media("image", "a.jpg")
