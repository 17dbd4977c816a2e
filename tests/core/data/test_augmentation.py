"""Media that are changed at random in training: alike for any workers and after a restart, and never in scoring."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from kosmos.data.document import Media
from kosmos.data.feeder import open_feeder
from kosmos.data.lane import Feed
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner, Route
from kosmos.data.processor import MediaPlan
from kosmos.data.slots import OnePerCell
from kosmos.data.tokenizer import load_tokenizer
from kosmos.errors import DataError
from support.ticks import TicksProcessor, TicksSource

MARKS = ("<ticks>", "</ticks>")


@dataclass(frozen=True)
class Louder(TicksProcessor):
    """Series are scaled at random in training."""

    augments: bool = True

    def augmented(self, media: Media, plan: MediaPlan, random: np.random.Generator) -> np.ndarray:
        return self.decode(media, plan) * np.float32(2 + random.random())


@dataclass(frozen=True)
class Shorter(Louder):
    """Gives fewer cells than were planned."""

    def augmented(self, media: Media, plan: MediaPlan, random: np.random.Generator) -> np.ndarray:
        return self.decode(media, plan)[1:]


def feed_of(processor: TicksProcessor, *, once: int | None = None, size: int = 30) -> Feed:
    routes = {"ticks": Route(processor, "ticks", OnePerCell(), frozenset(MARKS))}
    planner = Planner(load_tokenizer("bytes", MARKS), routes, 128, {})
    mixture = Mixture((TicksSource("train", size),), (1.0,), True, 0, once=once, num_lanes=1 if once else 4)
    return Feed(mixture, planner, 16, ("ticks",))


def values(feed, steps, *, workers=0, state=None):
    """Of all media by step, and the state after them."""
    feeder = open_feeder(feed, range(feed.mixture.num_lanes), workers=workers, state=state)
    try:
        rows = [[row.arrays.media["ticks"].values.copy() for row in feeder.next_step()] for _ in range(steps)]
        return rows, feeder.state()
    finally:
        feeder.close()


def assert_same(one, other) -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_drawn_is_the_same_with_any_number_of_workers_and_after_a_restart(workers: int) -> None:
    feed = feed_of(Louder(4))
    whole, _ = values(feed, 6)
    assert_same(values(feed, 6, workers=workers)[0], whole)
    _, state = values(feed, 3)
    assert_same(values(feed, 3, workers=workers, state=state)[0], whole[3:])


def test_a_sample_is_changed_anew_whenever_it_comes_again() -> None:
    changed, plain = values(feed_of(Louder(4), size=4), 8)[0], values(feed_of(TicksProcessor(4), size=4), 8)[0]
    factors = [
        np.round(a[b != 0] / b[b != 0], 3)
        for rows, as_it_is in zip(changed, plain, strict=True)
        for a, b in zip(rows, as_it_is, strict=True)
    ]
    drawn = np.unique(np.concatenate(factors))
    assert len(drawn) > 50 and drawn.min() >= 2 and drawn.max() <= 3


def test_what_is_scored_is_taken_as_it_is() -> None:
    scored = [values(feed_of(processor, once=8), 1)[0] for processor in (Louder(4), TicksProcessor(4))]
    assert_same(*scored)


def test_a_processor_that_changes_the_number_of_cells_is_named() -> None:
    feeder = open_feeder(feed_of(Shorter(4)), range(4), workers=0)
    with pytest.raises(
        DataError, match=r"no usable sample; the last: .*Shorter planned \d+ cells .* and decoded \d+ of"
    ):
        feeder.next_step()
