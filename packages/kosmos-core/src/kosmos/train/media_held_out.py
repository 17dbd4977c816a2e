"""Held-out documents about media that others are trained on, such as those of a set with five captions a clip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from kosmos.data.document import Source
from kosmos.data.media_in_common import advice_on, media_of, media_of_rows
from kosmos.data.sources.source import RowSource
from kosmos.data.spread import spread
from kosmos.errors import SampleError

MOST_LOOKED_AT = 2_000
"""Documents of each part of a source whose media are compared, by their files alone."""


def media_held_out(sources: Sequence[Source], held_out: Sequence[Source]) -> Iterator[str]:
    """A warning for each source of which held-out documents are about media, or the same pieces of them, that others
    of it are trained on.

    Args:
        sources: what is trained on.
        held_out: what these hold out, by their names. There may be others among them.
    """
    parts = {source.name: source for source in held_out}
    for trained in sources:
        scored = parts.get(trained.name)
        if not isinstance(trained, RowSource) or not isinstance(scored, RowSource) or _reads_much(trained):
            continue
        known = media_of_rows(trained, spread(len(trained), MOST_LOOKED_AT).tolist(), clips=True)
        if len(known) < 2:  # which can be held out or trained on
            continue
        count, first, looked_at = 0, "", spread(len(scored), MOST_LOOKED_AT).tolist()
        for row in looked_at:
            with suppress(SampleError):
                if shared := sorted(known & media_of(scored.document(row), clips=True), key=str):
                    count, first = count + 1, first or Path(shared[0].file).name
        if count:
            at_least = "at least " if max(len(trained), len(scored)) > MOST_LOOKED_AT else ""
            yield (
                f"{trained.name}: {at_least}{count:,} of {len(scored):,} held-out documents are about media that "
                f"others are trained on too (such as {first:.80}), so that their scores tell little of what was "
                f"not seen{advice_on(scored)}"
            )


def _reads_much(source: RowSource) -> bool:
    """Whether its rows hold their media, of which a block would be read for each, or it has none."""
    return source.table.row_blocks() is not None or (source.modalities is not None and not source.modalities)
