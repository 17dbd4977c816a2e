"""Held-out documents about media that others are trained on, such as those of a set with five captions a clip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from kosmos.data.document import Source
from kosmos.data.media_in_common import Medium, advice_on, are_common, media_of, media_of_rows
from kosmos.data.sources.source import RowSource
from kosmos.data.spread import spread
from kosmos.errors import SampleError

MOST_LOOKED_AT = 2_000
"""Documents of each part of a source whose media are compared, by their files alone."""
NEAR = 4
"""Trained rows before and behind each held-out one that are looked at besides where there are more: captions of one
medium mostly stand together."""


def media_held_out(sources: Sequence[Source], held_out: Sequence[Source]) -> Iterator[str]:
    """A warning for each source of which held-out documents are about media, or the same pieces of them, that others
    of it are trained on. A medium that very many rows have, such as a logo, tells nothing.

    Args:
        sources: what is trained on.
        held_out: what these hold out, by their names. There may be others among them.
    """
    names = {source.name for source in sources}
    for trained, scored in product(sources, held_out):
        if not isinstance(trained, RowSource) or not isinstance(scored, RowSource) or _reads_much(trained):
            continue
        if scored.name != trained.name and (scored.name in names or not _of_one_table(trained, scored)):
            continue
        if len(known := _Trained.of(trained)) < 2:  # which can be held out or trained on
            continue
        count, first, held = 0, "", spread(len(scored), MOST_LOOKED_AT).tolist()
        known.look_near(scored, held)
        for row in held:
            with suppress(SampleError):
                if shared := known.shared(media_of(scored.document(row), clips=True)):
                    count, first = count + 1, first or Path(shared[0].file).name
        if count:
            at_least = "at least " if count < len(scored) and max(map(len, (trained, scored))) > MOST_LOOKED_AT else ""
            of = f"; of {len(known.rows):,} of {len(trained):,} trained rows" if len(known.rows) < len(trained) else ""
            yield (
                f"{scored.name}: {at_least}{count:,} of {len(scored):,} held-out documents are about media that "
                f"others are trained on too (such as {first:.80}{of}), so that their scores tell little of what was "
                f"not seen{'' if known.common else advice_on(scored)}"
            )


def _of_one_table(one: RowSource, other: RowSource) -> bool:
    """Whether they read rows of the same files, as those that a run file tells apart by ``rows``."""
    mine, theirs = one.table.extent(), other.table.extent()
    return mine is not None and theirs is not None and not {*mine.files}.isdisjoint(theirs.files)


@dataclass
class _Trained:
    """The media of trained rows."""

    source: RowSource
    rows: set[int]
    """That were looked at."""
    media: set[Medium]
    common: set[Medium]
    """Those that so many rows have that they tell nothing of one."""

    def __len__(self) -> int:
        return len(self.media)

    @classmethod
    def of(cls, source: RowSource) -> _Trained:
        """Of rows from all over a source."""
        rows = spread(len(source), MOST_LOOKED_AT).tolist()
        counts = Counter(medium for row in rows for medium in media_of_rows(source, [row], clips=True))
        common = are_common(np.array([*counts.values()], np.int64), len(rows))
        return cls(source, {*rows}, {*counts}, {medium for medium, is_it in zip(counts, common, strict=True) if is_it})

    def look_near(self, scored: RowSource, held: Sequence[int]) -> None:
        """Look at the rows near held-out ones, too."""
        rows = self.source.rows
        if scored.table is not self.source.table or len(self.rows) == len(rows) or (np.diff(rows) < 0).any():
            return
        for place in np.searchsorted(rows, scored.rows[np.array(held, np.int64)]).tolist():
            near = {*range(max(0, place - NEAR), min(len(rows), place + NEAR))} - self.rows
            self.media |= media_of_rows(self.source, sorted(near), clips=True)
            self.rows |= near

    def shared(self, media: set[Medium]) -> list[Medium]:
        """The media of a document where all of them are trained on, but for those that tell nothing."""
        own = media - self.common
        return sorted(own, key=str) if own <= self.media else []


def _reads_much(source: RowSource) -> bool:
    """Whether its rows hold their media, of which a block would be read for each, or it has none."""
    return source.table.row_blocks() is not None or (source.modalities is not None and not source.modalities)
