"""Examples in front of questions whose media cannot be decoded: others stand in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from kosmos.compose import Composition
from kosmos.data.choices import ChoiceSource
from kosmos.data.example_media import ExampleMedia
from kosmos.data.feeder import open_feeder, sample_hang_s
from kosmos.data.lane import Feed
from kosmos.data.mixture import Mixture
from kosmos.data.quarantine import Incident
from kosmos.errors import SampleError
from kosmos.evaluate.score import ScoringStopped, together, useful_workers
from kosmos.runtime.parallel import Parallel

ANY_LENGTH = 1 << 24
"""Tokens that no medium takes."""


def pass_over_broken(
    composition: Composition,
    sources: Sequence[ChoiceSource],
    parallel: Parallel,
    *,
    workers: int,
    should_stop: Callable[[], bool],
    at: Callable[..., None],
) -> list[Incident]:
    """Decode each example that is drawn once, so that a broken one costs no question; those are named by their rows.

    Args:
        composition: for scores.
        parallel: the processes that share the examples. All of them call this, and find the same.
        workers: processes that decode; 0 decodes here. An example that ends one of them, or hangs there, is broken.
        should_stop: asked before every example.
        at: told what begins, example by example.

    Raises:
        ScoringStopped: some rank was to stop.
    """
    look = _Look(composition, parallel, workers, should_stop, at)
    incidents = []
    for source in sources:
        if (pool := source.pool) is None:
            continue
        if source.broken_drawn is None:  # else an earlier scoring of the run has looked
            source.broken_drawn = look.broken(source, pool)
        for place, why in source.broken_drawn.items():
            cause = f"is no example in front of other questions: {why}"
            origin = pool.source.origin(pool.rows[place])
            incidents.append(Incident(origin, source.name, SampleError.code, cause))
    return incidents


class _Look:
    def __init__(
        self,
        composition: Composition,
        parallel: Parallel,
        workers: int,
        should_stop: Callable[[], bool],
        at: Callable[..., None],
    ) -> None:
        self.composition, self.parallel, self.workers = composition, parallel, workers
        self.should_stop, self.at = should_stop, at

    def broken(self, source: ChoiceSource, pool: ChoiceSource) -> dict[int, str]:
        """Places of the pool's rows that were to be examples and cannot be shown, with why."""
        found: dict[int, str] = {}
        if pool.source.modalities is not None and not pool.source.modalities:
            return found
        looked: set[int] = set()
        # What stands in the place of a broken one may be broken, too.
        while new := [place for place in self._shown(source) if place not in looked]:
            looked.update(new)
            why = self._undecodable(source.example_media(new))
            of_these = {p: why[origin] for p in new if (origin := pool.source.origin(pool.rows[p])) in why}
            pool.broken.update(of_these)
            found |= of_these
        return dict(sorted(found.items()))

    def _shown(self, source: ChoiceSource) -> list[int]:
        """As ``examples_shown``, by the first rank alone: whether two media are the same takes reading them."""

        def before_each(origin: str) -> None:
            self.at("choosing examples", document=origin)
            if self.should_stop():
                raise ScoringStopped

        def shown() -> list[int] | None:
            with suppress(ScoringStopped):
                return source.examples_shown(before_each)
            return None

        if (found := self.parallel.main_only(shown)) is None:
            raise ScoringStopped
        return found

    def _undecodable(self, examples: ExampleMedia) -> dict[str, str]:
        """Why they cannot be decoded, by their origins."""
        composition, parallel, at = self.composition, self.parallel, self.at
        # An example counts by its media alone: whether there is room for it is for the question to tell.
        planner = replace(composition.planner, max_tokens=ANY_LENGTH, longest=None, max_cells={})
        mixture = Mixture.read_once([examples], len(examples), num_lanes=parallel.data_world_size)
        feed = Feed(mixture, planner, 1, composition.streams)  # without a look-ahead a row holds one example
        workers = useful_workers(self.workers, len(examples) // parallel.data_world_size, decodes=True)
        hang_s = sample_hang_s(composition.config.train.hang_s)
        feeder = open_feeder(
            feed, [parallel.data_rank], workers=workers, hang_s=hang_s, moved=lambda: at("reading examples")
        )

        def is_to_stop() -> bool:
            # Asked before each example, be it broken, of which no row is made, and while a worker is waited for, which
            # is ended where it stands still.
            at("reading examples")
            return self.should_stop()

        incidents: list[Incident] = []
        try:
            for row in together(feeder, parallel, is_to_stop, at):
                incidents += row.incidents if row else []
        finally:
            feeder.close()
        return {one.origin: one.cause for of_rank in parallel.gather(incidents) for one in of_rank}
