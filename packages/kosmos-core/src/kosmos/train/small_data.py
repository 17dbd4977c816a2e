"""What is told of a run whose data are few for what it does with them. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kosmos.config import RunConfig
from kosmos.data.document import Source

MANY = 20
"""Passes over the data from which on a run is told of them. Learning by heart begins before that: with text after four
or so. A few photos or recordings are trained on longer, and knowingly."""
FEW = 5
"""Held-out documents below which scores are told to say next to nothing."""


class PassesTold:
    """Of a run whose length was given in steps, how often its documents come."""

    def __init__(self) -> None:
        self._documents: int | None = None
        self._reached = 0.0
        self._is_told = False

    def start(self, sources: Sequence[Source], *, in_epochs: bool) -> None:
        """
        Args:
            in_epochs: whether the length was given so, and is known.
        """
        self._documents, self._is_told = None if in_epochs else sum(map(len, sources)), False

    def at(self, row: Mapping[str, Any], steps: int) -> str | None:
        """A warning behind the first step that a launch takes, by which it is known how many passes so many steps are.

        Args:
            row: of metrics.
        """
        self._reached = row.get("epoch", 0.0)
        passes, is_told = self._reached / row["step"] * steps, self._is_told
        self._is_told = True
        if self._documents is None or is_told or passes < MANY:
            return None
        return (
            f"train.steps {steps:,} are about {passes:,.0f} passes over the {self._documents:,} documents, which the "
            "model then learns by heart: the loss of training tells little; take fewer steps (--epochs says passes), "
            "or more data"
        )

    def at_end(self) -> str | None:
        """A line of a run that has come to many."""
        if self._documents is None or self._reached < MANY:
            return None
        return (
            f"these were {self._reached:,.0f} passes over {self._documents:,} documents: what is held out tells what "
            "was learned, and the loss of training what is known by heart"
        )


def few_held_out(config: RunConfig, scored: Sequence[Source]) -> Iterator[str]:
    """A warning of scores of a handful of documents, unless no more were asked for.

    Args:
        scored: what a run holds out, and the questions that it scores beside that.
    """
    most, found = config.evaluate.max_documents, sum(map(len, scored))
    if 0 < found < FEW <= most:
        were = "1 document is" if found == 1 else f"{found} documents are"
        yield (
            f"{were} held out: scores of so few are chance; hold out more (data.held_out), or name others to score "
            "(evaluate.sources)"
        )
