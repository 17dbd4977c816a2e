"""What is told of a run whose data are few for what it does with them. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kosmos.config import RunConfig
from kosmos.data.document import Source

if TYPE_CHECKING:
    from kosmos.train.forecast.rows import Passes

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
        self._of_source: dict[str, int] = {}
        """Documents of each."""
        self._reached_by_source: Mapping[str, float] = {}
        self._told: set[str] = set()

    def start(self, sources: Sequence[Source], *, in_epochs: bool) -> None:
        """
        Args:
            in_epochs: whether the length was given so, and is known.
        """
        self._documents, self._is_told = None if in_epochs else sum(map(len, sources)), False
        self._of_source = {source.name: len(source) for source in sources}

    def at(self, row: Mapping[str, Any], steps: int) -> Iterator[str]:
        """A warning behind the first step that a launch takes, by which it is known how many passes so many steps are;
        of a source with a weight once it was passed over, and its passes can be reckoned.

        Args:
            row: of metrics.
        """
        self._reached_by_source = row.get("epoch_by_source", {})
        for name, reached in self._reached_by_source.items():
            passes = reached / row["step"] * steps
            if reached >= 1 and passes >= MANY and name not in self._told:
                self._told.add(name)
                yield drawn_often(name, self._of_source[name], passes, steps)
        if (line := self._of_all(row, steps)) is not None:
            yield line

    def _of_all(self, row: Mapping[str, Any], steps: int) -> str | None:
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

    def at_end(self) -> Iterator[str]:
        """Lines of a run that has come to many."""
        for name, reached in self._reached_by_source.items():
            if reached >= MANY:
                yield f"these were {reached:,.0f} passes over {name}, of {_documents(self._of_source[name])}"
        if (line := self._of_all_at_end()) is not None:
            yield line

    def _of_all_at_end(self) -> str | None:
        if self._documents is None or self._reached < MANY:
            return None
        return (
            f"these were {self._reached:,.0f} passes over {self._documents:,} documents: what is held out tells what "
            "was learned, and the loss of training what is known by heart"
        )


def drawn_often(name: str, documents: int, passes: float, steps: int) -> str:
    """A warning of a source that is learned by heart, whose weight draws it so often."""
    return (
        f"{name}: by its weight train.steps {steps:,} are about {passes:,.0f} passes over its {_documents(documents)}, "
        "which the model then learns by heart: lower its weight, take fewer steps, or give it more documents"
    )


def often_drawn(sources: Sequence[Passes], steps: int) -> Iterator[str]:
    """Warnings of sources with weights that so many steps draw very often."""
    for of in sources:
        if of.passes is not None and of.passes >= MANY:
            yield drawn_often(of.name, of.documents, of.passes, steps)


def _documents(number: int) -> str:
    return f"{number:,} document{'s' * (number != 1)}"


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
