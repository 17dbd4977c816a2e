"""How many steps the epochs of a run are, by what its documents take and how full its rows are. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kosmos.config import RunConfig
from kosmos.data.lane import Feed, Lane
from kosmos.errors import ConfigError, DataError
from kosmos.train.forecast.rows import plan_rows

LOOKED_AT = 4096
"""Documents whose headers are read, or as many as there are. Where their lengths vary by as much as they are long, the
mean of so many is right to a hundredth or two."""
FEWEST = 16
"""Of those of a source."""
STRETCHES = 16
"""Of the draws of a source: rows that are read in blocks lie beside their like."""
ROWS = 32
"""Rows that are filled to see how full they are."""
MORE = 1.2
"""Times as many epochs as were asked for, which are worth a word: a step may take more than these."""


@dataclass(frozen=True)
class Counted:
    """What the epochs of a run come to."""

    epochs: float
    steps: int
    documents: int
    looked_at: int
    tokens_of_row: float
    comes_to: float
    """Epochs that the steps take."""

    def told(self) -> str:
        """For a person."""
        every = f"all {self.documents:,}" if self.looked_at == self.documents else f"{self.looked_at:,}"
        told = (
            f"{self.epochs:g} epoch{'s' * (self.epochs != 1)} of {self.documents:,} documents: {self.steps:,} "
            f"step{'s' * (self.steps > 1)}, by the tokens of {every} of them and rows of {self.tokens_of_row:,.0f}"
        )
        if self.comes_to <= MORE * self.epochs:
            return told
        return f"{told}; that is {self.comes_to:.3g} epochs, fewer by lower data.lanes or data.tokens_per_pack"


def in_steps(config: RunConfig, feed: Feed) -> tuple[RunConfig, Counted]:
    """A run of epochs with the steps that they come to, and how they were counted. Raises as ``count_steps``."""
    assert config.train.epochs is not None, config.train
    found = count_steps(feed, lanes=config.data.lanes, epochs=config.train.epochs)
    return config.model_copy(update={"train": config.train.in_steps(found.steps)}), found


def count_steps(feed: Feed, *, lanes: int, epochs: float) -> Counted:
    """The steps in which every document of ``feed`` comes so many times. Headers are read, nothing is decoded.

    Args:
        lanes: rows of a step.

    Raises:
        ConfigError: the sources have weights, by which documents do not come equally often.
        DataError: no document that was looked at can be used.
    """
    sources = feed.mixture.sources
    documents = feed.mixture.epoch
    if documents is None:
        raise ConfigError(
            "train.epochs: by the weights of the sources their documents do not come equally often; say train.steps or "
            "train.tokens (kosmos plan tells how often each source comes), or leave the weights out"
        )
    lane, tokens, looked_at = Lane(feed, 0), 0.0, 0
    for number, source in enumerate(sources):
        draws = _some_of(len(source), max(FEWEST, math.ceil(LOOKED_AT * len(source) / documents)))
        taken = sum(len(piece) for draw in draws for piece in lane.plans(number, draw))
        tokens += taken / len(draws) * len(source)
        looked_at += len(draws)
    if not tokens:
        last = lane.incidents[-1]
        raise DataError(
            f"train.epochs: of {looked_at:,} documents that were looked at none can be used; the last: {last.origin}: "
            f"{last.cause}"
        )
    of_row = plan_rows(feed, lanes=1, steps=ROWS, seconds=math.inf).tokens
    steps = max(1, math.ceil(epochs * tokens / (lanes * of_row)))
    return Counted(epochs, steps, documents, looked_at, of_row, steps * lanes * of_row / tokens)


def _some_of(size: int, wanted: int) -> list[int]:
    """About ``wanted`` of an epoch's ``size`` draws, in stretches that lie evenly over it; all where they are fewer."""
    if wanted >= size:
        return list(range(size))
    each = math.ceil(wanted / STRETCHES)
    begins = [number * size // STRETCHES for number in range(STRETCHES)]
    return sorted({begin + draw for begin in begins for draw in range(each) if begin + draw < size})
