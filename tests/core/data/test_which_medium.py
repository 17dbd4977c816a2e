"""Of the media of a document, the one that cannot be used is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kosmos import Document, Grid, Media, MediaPlan, SampleError, Text
from kosmos.data.lane import Feed, Lane
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner, Route
from kosmos.data.slots import OnePerCell
from kosmos.data.tokenizer import load_tokenizer


class Bytes:
    """A cell a byte. What holds ``!`` cannot be planned, what holds ``?`` not be decoded."""

    cell_shape: tuple[int, ...] = (1,)
    cell_dtype = np.dtype(np.uint8)

    def plan(self, media):
        content = read(media)
        if b"!" in content:
            raise SampleError("broken header")
        return MediaPlan((Grid(len(content), 1, 1),))

    def decode(self, media, plan):
        content = read(media)
        if b"?" in content:
            raise SampleError(f"broken{' file deep.bin' if b'??' in content else ''}")
        return np.frombuffer(content, np.uint8).reshape(-1, 1)


def read(media):
    return media.source.read_bytes() if isinstance(media.source, Path) else media.source


class One:
    """One document of given media."""

    name = "one"

    def __init__(self, media, origin):
        self.media, self.origin_of = tuple(media), origin

    def __len__(self):
        return 1

    def document(self, index):
        return Document(self.origin_of, (*self.media, Text("x", train=True)))


def cause(*media, origin="one"):
    routes = {name: Route(Bytes(), name, OnePerCell(), frozenset()) for name in ("near", "far")}
    mixture = Mixture((One(media, origin),), (1.0,), True, 0, once=1)
    lane = Lane(Feed(mixture, Planner(load_tokenizer("bytes", ()), routes, 64, {}), 1, ("near", "far")), 0)
    [incident] = lane.turn().incidents
    return incident.cause


@pytest.mark.parametrize(("bad", "said"), [(b"!", "broken header"), (b"?", "broken")])
def test_the_one_that_cannot_be_planned_or_decoded_is_named(bad, said, tmp_path):
    near, far, wrong = Media("near", b"ok"), Media("far", b"ok"), Media("near", bad)
    (tmp_path / "deep.bin").write_bytes(bad)
    file = Media("far", tmp_path / "deep.bin")
    assert cause(wrong) == said
    assert cause(file) == f"far (deep.bin): {said}"
    assert cause(file, origin=f"{tmp_path}/deep.bin") == said  # the document is the file
    assert cause(near, far, wrong, near) == f"near 2 of 3: {said}"
    assert cause(near, file, near) == f"far (deep.bin): {said}"
    assert cause(far, file) == f"far 2 of 2 (deep.bin): {said}"


def test_a_file_that_the_error_names_is_not_named_twice(tmp_path):
    (tmp_path / "deep.bin").write_bytes(b"??")
    assert cause(Media("near", b"ok"), Media("far", tmp_path / "deep.bin")) == "broken file deep.bin"
