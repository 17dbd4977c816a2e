"""How many steps the epochs of a run are, by what its documents take and how full its rows are. No torch here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kosmos.config import DataConfig, RunConfig
from kosmos.data.lane import Feed, Lane
from kosmos.errors import ConfigError, DataError
from kosmos.train.forecast.rows import next_row, plan_rows
from kosmos.train.source_tokens import LOOKED_AT, HeaderLane, SourceTokens, tokens_of_sources, wanted_of

ROWS = 32
"""Rows that are filled to see how full they are, where there are more documents than are looked at."""
WORTH_TELLING = 0.01
"""Standard error of a number from which on it is told."""
ROUNDING = 1e-9
"""By which a sum of fractions may fall short of a whole."""
MORE = 1.2
"""Times as many epochs as were asked for, which are worth a word: a step may take more than these."""
MUCH_MORE = 1.5
"""Times as many, which are worth a warning."""
TOLD_AFTER_S = 2.0
"""Seconds after which a line says what is waited for: headers of films, or of a slow disk, take milliseconds each."""
Report = Callable[[str], None]
"""Shows a line to the user."""


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
    error: float = 0.0
    """Standard error of the steps, as a share of them; 0 where all documents and rows were looked at."""
    sources: tuple[SourceTokens, ...] = ()
    """Of each."""

    def line(self) -> str:
        """For a person."""
        every = f"all {self.documents:,}" if self.looked_at == self.documents else f"{self.looked_at:,}"
        return (
            f"{_told(self.epochs)} of {self.documents:,} documents: {self.steps:,} "
            f"step{'s' * (self.steps > 1)}{give_or_take(self.error)}, by the tokens of {every} of them and rows of "
            f"{self.tokens_of_row:,.0f}"
        )

    def told(self) -> str:
        """For a person who gets no ``warning``."""
        if self.comes_to <= MORE * self.epochs:
            return self.line()
        return f"{self.line()}; that is {self.comes_to:.3g} epochs, fewer by lower data.lanes or data.tokens_per_pack"

    def warning(self, data: DataConfig) -> str | None:
        """Of steps that take many more epochs than were asked for: a step is the least that there is."""
        if self.comes_to < MUCH_MORE * self.epochs:
            return None
        lanes = f"{data.lanes} row{'s' * (data.lanes > 1)} (data.lanes)"
        rows = f"{lanes} of {data.tokens_per_pack} tokens (data.tokens_per_pack)"
        return (
            f"train.epochs {self.epochs:g}: it will be {self.comes_to:.3g} epochs in fact, since a step fills {rows}; "
            "lower one of these, or set train.steps if so many are meant"
        )


class TooLong(Exception):
    """To count takes more seconds than it may."""


class Wait:
    """Tells once of a wait that is long, and ends one that is too long."""

    def __init__(self, what: str, report: Report, at_most_s: float = math.inf) -> None:
        self.what, self.report, self.at_most_s = what, report, at_most_s
        self.began, self.said = time.monotonic(), False

    def moved(self) -> None:
        """To be called now and then. Raises TooLong."""
        waited_s = time.monotonic() - self.began
        if waited_s > self.at_most_s:
            raise TooLong
        if not self.said and waited_s > TOLD_AFTER_S:
            self.said = True
            self.report(self.what)


def in_steps(config: RunConfig, feed: Feed, report: Report = lambda line: None) -> tuple[RunConfig, Counted]:
    """A run of epochs with the steps that they come to, and how they were counted. Raises as ``count_steps``."""
    assert config.train.epochs is not None, config.train
    found = count_steps(feed, lanes=config.data.lanes, epochs=config.train.epochs, report=report)
    return config.model_copy(update={"train": config.train.in_steps(found.steps)}), found


def count_steps(
    feed: Feed,
    *,
    lanes: int,
    epochs: float,
    report: Report = lambda line: None,
    at_most_s: float = math.inf,
    known: Sequence[SourceTokens] | None = None,
) -> Counted:
    """The steps in which every document of ``feed`` comes so many times. Headers are read, nothing is decoded.

    Args:
        lanes: rows of a step.
        report: told what is going on where it takes long.
        at_most_s: seconds that it may take.
        known: tokens of each source, where somebody has counted them.

    Raises:
        ConfigError: the sources have weights, by which documents do not come equally often.
        DataError: no document that was looked at can be used.
        TooLong: it takes more than ``at_most_s``.
    """
    documents = feed.mixture.epoch
    if documents is None:
        raise ConfigError(
            "train.epochs: by the weights of the sources their documents do not come equally often; say train.steps or "
            "train.tokens (kosmos plan tells how often each source comes), or leave the weights out"
        )
    lane = HeaderLane(feed, 0)
    wait = Wait(
        f"counting the steps of {_told(epochs)}: reading the headers of {sum(wanted_of(feed)):,} documents",
        report,
        at_most_s,
    )
    found = tuple(tokens_of_sources(lane, wait.moved)) if known is None else tuple(known)
    tokens, looked_at = sum(of.total for of in found), sum(of.looked_at for of in found)
    if not tokens:
        last = lane.incidents[-1]
        raise DataError(
            f"train.epochs: of {looked_at:,} documents that were looked at none can be used; the last: {last.origin}: "
            f"{last.cause}"
        )
    if sum(wanted_of(feed)) == documents:
        every = [lane, *(HeaderLane(feed, n, known=lane.known) for n in range(1, lanes))]
        return replace(_filled(every, epochs, tokens, wait), sources=found)
    rows = np.array(
        [
            len(row.arrays.token_ids)
            for row in plan_rows(feed, lanes=1, steps=ROWS, seconds=math.inf, moved=wait.moved).rows
        ]
    )
    of_row = float(rows.mean())
    steps = max(1, math.ceil(epochs * tokens / (lanes * of_row)))
    error = math.hypot(*(of.error / tokens for of in found), float(rows.std()) / math.sqrt(len(rows)) / of_row)
    return Counted(epochs, steps, documents, looked_at, of_row, steps * lanes * of_row / tokens, error, found)


def give_or_take(error: float) -> str:
    """What to say behind a number of an error that is worth it, such as `` (± 2.1 %)``.

    Args:
        error: its standard error, as a share of it.
    """
    if not math.isfinite(error):
        return " (by so few that nobody knows how far it is off)"
    return f" (± {100 * error:.2g} %)" if error > WORTH_TELLING else ""


def _filled(every: Sequence[Lane], epochs: float, tokens: float, wait: Wait) -> Counted:
    """Of few documents: by all rows of the epochs or, where these are many, of as many whole ones as are few."""
    lanes, documents = len(every), every[0].feed.mixture.epoch
    assert documents is not None
    filled, steps, taken = min(epochs, max(1, LOOKED_AT // documents)), 0, 0
    while taken < filled * tokens * (1 - ROUNDING):
        steps += 1
        for lane in every:
            taken += len(next_row(lane).arrays.token_ids)
            wait.moved()
    of_step = taken / steps
    if filled < epochs:
        steps = math.ceil(epochs * tokens / of_step * (1 - ROUNDING))
    return Counted(epochs, steps, documents, documents, of_step / lanes, steps * of_step / tokens)


def _told(epochs: float) -> str:
    return f"{epochs:g} epoch{'s' * (epochs != 1)}"
