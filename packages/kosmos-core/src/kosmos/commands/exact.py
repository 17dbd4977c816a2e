"""How long the documents of each source are and how many steps they take, as ``kosmos data`` tells it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kosmos.commands.checked import Check
from kosmos.commands.figures import more_lines
from kosmos.errors import DataError
from kosmos.visible import in_a_line, say

if TYPE_CHECKING:
    from kosmos.compose import Composition
    from kosmos.data.document import Source
    from kosmos.data.figures import Figures

COUNT_S = 10.0
"""Seconds that it may take to count the steps of documents whose run has another length than epochs."""


def sample_lines(
    composition: Composition, sources: Sequence[Source], figures: Mapping[str, Figures | None]
) -> list[str]:
    """By some of the documents, as training counts them."""
    return [*_figure_lines(sources, figures), _step_line(composition, sources, figures)]


@dataclass(frozen=True)
class ExactFigures:
    """By all documents. Nothing where they were not all looked at."""

    sources: Sequence[Source]
    by_source: dict[str, dict[str, Any] | None]
    """As ``Exact``, with the ``steps`` that take every document once. None where none can be used."""
    step: str

    def lines(self, figures: Mapping[str, Figures | None]) -> Iterator[str]:
        """
        Args:
            figures: of some of the documents, which tell what is not known of all.
        """
        for source in self.sources if self.by_source else ():
            name, exact, of = in_a_line(source.name), self.by_source[source.name], figures[source.name]
            if exact is None:
                yield f"tokens    {name}: none of the documents can be used"
                continue
            each = f"{exact['shortest']:,} to {exact['longest']:,} a document, {exact['mean']:,.1f} on average"
            line = f"tokens    {name}: exactly {exact['tokens']:,} in {exact['documents']:,} documents, {each}"
            if of is not None:
                some = f"of the first {of.looked_at:,} " if of.looked_at < len(source) else ""
                shares = f"{100 * of.media_share:.0f} % of media, {100 * of.learned_share:.0f} % learned"
                line = f"{line}; {some}{shares}"
            yield f"{line}; once in {exact['steps']:,} step{'s' * (exact['steps'] > 1)}"
            if of is not None:
                yield from more_lines(source.name, of)
        if self.by_source:
            yield self.step


def exact_figures(composition: Composition, sources: Sequence[Source], check: Check) -> ExactFigures:
    """What the documents come to, by a check of all."""
    from kosmos.compose import make_feed
    from kosmos.train.forecast.rows import plan_rows
    from kosmos.train.length import ROWS, count_steps
    from kosmos.train.source_tokens import SourceTokens

    settings, epochs = composition.config.data, composition.config.train.epochs
    step, found = f"step      {settings.lanes} x {settings.tokens_per_pack:,} tokens", check.exact()
    if not any(found.values()):
        return ExactFigures(sources, dict.fromkeys(found), step)
    feed = make_feed(composition, sources)
    if feed.mixture.epoch is None:
        of_row = plan_rows(feed, lanes=1, steps=ROWS, seconds=math.inf).tokens
    else:
        known = [SourceTokens(len(s), len(s), of.tokens if (of := found[s.name]) else 0, 0.0) for s in sources]
        counted = count_steps(feed, lanes=settings.lanes, epochs=epochs or 1.0, report=say, known=known)
        of_row = counted.tokens_of_row
        once = f": every document once takes {counted.steps:,} step{'s' * (counted.steps > 1)}, by the tokens of all"
        step += once if epochs is None else f"\n          {counted.told()}"
    of_step = of_row * settings.lanes
    by_source = {
        name: None if of is None else {**asdict(of), "steps": max(1, math.ceil(of.tokens / of_step))}
        for name, of in found.items()
    }
    return ExactFigures(sources, by_source, step)


def _figure_lines(sources: Sequence[Source], figures: Mapping[str, Figures | None]) -> Iterator[str]:
    for source in sources:
        of = figures[source.name]
        if of is None:
            yield f"tokens    {in_a_line(source.name)}: none of the first documents can be used"
            continue
        some = f", of the first {of.looked_at:,}" if of.looked_at < len(source) else ""
        shares = f"{100 * of.media_share:.0f} % of media, {100 * of.learned_share:.0f} % learned"
        yield (
            f"tokens    {in_a_line(source.name)}: {of.shortest:,} to {of.longest:,} a document, "
            f"{of.mean:,.0f} on average{some}; {shares}"
        )
        yield from more_lines(source.name, of)


def _step_line(composition: Composition, sources: Sequence[Source], figures: Mapping[str, Figures | None]) -> str:
    """What a step holds, and how many of them it takes to train on the documents: as many as training would count."""
    from kosmos.compose import make_feed
    from kosmos.train.length import TooLong, count_steps, give_or_take
    from kosmos.train.source_tokens import LOOKED_AT

    settings, epochs = composition.config.data, composition.config.train.epochs
    line = f"step      {settings.lanes} x {settings.tokens_per_pack:,} tokens"
    feed = make_feed(composition, sources)
    if feed.mixture.epoch is None:
        return line
    at_most_s = COUNT_S if epochs is None else math.inf  # training waits for it, too
    try:
        found = count_steps(feed, lanes=settings.lanes, epochs=epochs or 1.0, report=say, at_most_s=at_most_s)
    except DataError as error:
        # Where none has figures, the lines before it say so.
        return f"{line}: {in_a_line(str(error))}" if any(figures.values()) else line
    except TooLong:
        total = sum(of.mean * len(source) for source in sources if (of := figures[source.name]) is not None)
        steps = max(1, math.ceil(total / (settings.lanes * settings.tokens_per_pack)))
        return (
            f"{line}: every document once takes about {steps:,} step{'s' * (steps > 1)}, were all rows full and all "
            "documents like the first; kosmos train --epochs 1 looks at "
            f"{min(LOOKED_AT, feed.mixture.epoch):,} of them and may count more"
        )
    if epochs is not None:
        return f"{line}\n          {found.told()}"
    once = f"{found.steps:,} step{'s' * (found.steps > 1)}{give_or_take(found.error)}"
    return f"{line}: every document once takes about {once}"
