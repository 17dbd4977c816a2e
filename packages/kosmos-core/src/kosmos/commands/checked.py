"""``kosmos data --check``: every document decoded once, what it came to, and how far it was when it was stopped."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kosmos.commands.bars import Advance, progress
from kosmos.data.ledger_codes import document_of
from kosmos.errors import DataError, Interrupted, SampleError
from kosmos.interrupts import came

if TYPE_CHECKING:
    from kosmos.compose import Composition
    from kosmos.data.batch import DocumentInfo
    from kosmos.data.document import Source
    from kosmos.data.duplicates import Duplicates
    from kosmos.data.quarantine import Incident

NEARLY = 1 - 1e-9
"""Of a document, which is whole: a sum of fractions may fall short of it."""


@dataclass(frozen=True)
class Exact:
    """All documents of a source that can be used."""

    documents: int
    tokens: int
    shortest: int
    mean: float
    longest: int
    """Tokens of a document."""


@dataclass
class _Lengths:
    """Of the documents of a source: 4 bytes each."""

    whole: array[int] = field(default_factory=lambda: array("I"))
    open: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Of those that come in pieces, by origin: how much of each has come, and its tokens."""

    def add(self, origin: str, share: float, tokens: int) -> None:
        if share < 1:
            before, earlier = self.open.pop(origin, (0.0, 0))
            share, tokens = share + before, tokens + earlier
        if share >= NEARLY:
            self.whole.append(tokens)
        else:
            self.open[origin] = share, tokens

    def exact(self) -> Exact | None:
        """None where there are none."""
        every = [*self.whole, *(tokens for _, tokens in self.open.values())]
        if not every:
            return None
        return Exact(len(every), sum(every), min(every), sum(every) / len(every), max(every))


@dataclass
class Check:
    """What was found. Of one that was stopped, so far."""

    total: int
    """Documents that there are."""
    of_source: dict[str, _Lengths] = field(default_factory=dict)
    """By the names of the sources that are trained on."""
    looked_at: int = 0
    """Documents that were decoded, or could not be."""
    incidents: list[Incident] = field(default_factory=list)
    duplicates: Duplicates | None = None
    """None until all are compared."""
    decoded: bool = False
    """Whether all were."""

    def exact(self) -> dict[str, Exact | None]:
        """Of the sources that are trained on; nothing unless all was decoded."""
        return {name: lengths.exact() for name, lengths in self.of_source.items()} if self.decoded else {}

    def as_row(self) -> dict[str, Any]:
        """For JSON."""
        same = self.duplicates and asdict(self.duplicates)
        return {"checked": self.looked_at, "to_check": self.total, "whole": self.is_whole, "duplicates": same}

    def lines(self) -> Iterator[str]:
        """For a person."""
        if self.duplicates is not None:
            yield f"same      {self.duplicates.told()}"

    @property
    def is_whole(self) -> bool:
        """Whether nothing has stopped it."""
        return self.duplicates is not None

    @property
    def bad(self) -> dict[tuple[str, Any], float]:
        """Source and number of each document that cannot be used, and how much of it."""
        return {(found.source, found.document): found.share for found in self.incidents}

    def conclude(self, share: float) -> str:
        """What to say of documents that can all be used.

        Args:
            share: ``data.quarantine``.

        Raises:
            Interrupted: it was stopped.
            DataError: a document cannot be used.
        """
        bad = self.bad
        if not self.is_whole:
            left = "documents were looked at" + (", and not all compared" if self.decoded else "")
            raise Interrupted(
                f"stopped ({came() or 'SIGINT'}): {self.looked_at:,} of {self.total:,} {left}; {len(bad):,} of them "
                "cannot be used"
            )
        if not bad:
            return f"all {self.total:,} documents can be used"
        parts = sum(share < 1 for share in bad.values())
        or_pieces = f" ({parts:,} of them in part)" if parts else ""
        raise DataError(
            f"{len(bad):,} of {self.total:,} documents cannot be used{or_pieces}; training leaves them out, up to a "
            f"share of {share:g} (data.quarantine)"
        )


def check_all(
    composition: Composition, sources: Sequence[Source], held_out: Sequence[Source], *, workers: int
) -> Check:
    """Decode every document once, as training does, and compare them. Ctrl-C ends it with what was found so far."""
    from kosmos.data.feeder import sample_hang_s

    found = Check(sum(map(len, (*sources, *held_out))), {source.name: _Lengths() for source in sources})
    try:
        with progress("decoding", unit="documents") as advance:
            decode_into(composition, sources, found, found.of_source, workers=workers, advance=advance)
            if held_out:  # by themselves: they have the names of what is trained on
                decode_into(composition, held_out, found, None, workers=workers, advance=advance)
        found.decoded, found.looked_at = True, found.total
        hang_s = sample_hang_s(composition.config.train.hang_s)
        found.duplicates = compared(sources, held_out, found.incidents, hang_s=hang_s)
    except KeyboardInterrupt:
        pass  # ``Check.conclude`` tells it, behind what was found
    places = {source.name: number for number, source in reversed(list(enumerate([*sources, *held_out])))}
    found.incidents.sort(key=lambda one: (places.get(one.source, len(places)), _by_number(one.origin)))
    return found


def decode_into(
    composition: Composition,
    sources: Sequence[Source],
    found: Check,
    lengths: Mapping[str, _Lengths] | None,
    *,
    workers: int,
    advance: Advance,
) -> None:
    """Decode documents once, in data workers, and note in ``found`` what could not be."""
    from kosmos.compose import make_scoring_feed
    from kosmos.data.feeder import open_feeder, sample_hang_s

    workers = min(workers, sum(map(len, sources)))  # others would have nothing to do
    lanes = max(1, workers)
    feed = make_scoring_feed(composition, sources, lanes=lanes, max_documents=sys.maxsize)
    hang_s = sample_hang_s(composition.config.train.hang_s)
    feeder = open_feeder(feed, range(lanes), workers=workers, hang_s=hang_s)
    before, reached = found.looked_at, dict[int, int]()
    try:
        while rows := feeder.next_step():
            for row in rows:
                found.incidents += row.incidents
                if lengths:
                    _note(row.arrays.documents, lengths)
                reached[row.lane] = _done(row.state)
                earlier, found.looked_at = found.looked_at, before + sum(reached.values())
                advance(found.looked_at - earlier, found.total)
    finally:
        feeder.close()


def _done(state: Mapping[str, Any]) -> int:
    """Documents that a lane has drawn and that wait no longer."""
    drawn: int = sum(state["draws"])
    return drawn - len({(source, draw) for source, draw, _ in state["pending"]})


def _note(documents: Sequence[DocumentInfo], lengths: Mapping[str, _Lengths]) -> None:
    for number, document in enumerate(documents):
        if document.is_rejected:
            continue
        behind = documents[number + 1] if number + 1 < len(documents) else None
        tokens = document.length + (behind.length if behind is not None and behind.is_rejected else 0)
        origin = document.origin if document.share == 1 else document_of(document.origin)
        lengths[document.source].add(origin, document.share, tokens)


def compared(
    sources: Sequence[Source], held_out: Sequence[Source], incidents: list[Incident], *, hang_s: float
) -> Duplicates:
    """Which documents are the same as others, but for those that cannot be used.

    Args:
        incidents: of these; each at which reading stands still is added.
        hang_s: seconds that reading one of them may take.
    """
    from kosmos.data.duplicates import find_duplicates
    from kosmos.data.quarantine import Incident
    from kosmos.train.tracker_limit import StandsStill, bounded

    def limit(source: str, origin: str, read: Callable[[], None]) -> None:
        try:
            bounded(read, hang_s)
        except StandsStill as error:
            refused = SampleError(f"{error} as it was compared")
            incidents.append(Incident(origin, source, refused.code, str(refused)))
            raise refused from error

    refused = {(found.source, found.origin) for found in incidents}
    with progress("comparing", unit="documents") as advance:
        return find_duplicates(sources, held_out, advance, refused, limit)


def _by_number(origin: str) -> list[Any]:
    """What sorts names by the numbers in them: lanes come to documents in no order that a reader knows."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", origin)]
