"""Feeds of series that may come to grief."""

from __future__ import annotations

from kosmos.data.lane import Feed
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner, Route
from kosmos.data.slots import OnePerCell
from kosmos.data.tokenizer import load_tokenizer
from support.faulty import Faulty, Numbered


def feed_of(*sources, fates=None, processor=None, lanes=2, weights=None, tokens=128):
    marks = ("<ticks>", "</ticks>")
    route = Route(processor or Faulty(fates or {}), "ticks", OnePerCell(), frozenset(marks))
    planner = Planner(load_tokenizer("bytes", marks), {"ticks": route}, tokens, {})
    sources = sources or (Numbered(40),)
    mixture = Mixture(sources, weights or tuple(float(len(s)) for s in sources), weights is None, 0, num_lanes=lanes)
    return Feed(mixture, planner, 12, ("ticks",))
