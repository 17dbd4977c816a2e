"""The ledger of bad samples: each costs itself alone, and is named with its cause."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kosmos.data.file_state import CHANGED
from kosmos.data.ledger_codes import MEDIUM, document_of
from kosmos.errors import DataError, QuarantineFull

if TYPE_CHECKING:
    from kosmos.data.batch import DocumentInfo


@dataclass(frozen=True, slots=True)
class Incident:
    """A sample that could not be used, or a piece of one."""

    origin: str
    source: str
    code: str
    """Code of the error's kind."""
    cause: str
    share: float = 1.0
    """Of its document."""

    @property
    def document(self) -> str:
        """Origin of the whole."""
        return document_of(self.origin)

    def told(self) -> dict[str, Any]:
        """What files and other programs are told of it."""
        return {name: value for name, value in asdict(self).items() if name != "share"}


def lost_media(documents: Iterable[DocumentInfo]) -> list[Incident]:
    """The media that were left out of documents."""
    return [Incident(d.origin, d.source, MEDIUM, cause) for d in documents for cause in d.lost]


class UselessData(DataError):
    """Sample after sample cannot be used."""

    incidents: tuple[Incident, ...] = ()
    """Those samples, which no row tells of."""

    @classmethod
    def of(cls, what: str, incidents: Sequence[Incident]) -> UselessData:
        """The error of some samples, of which it names the last one, but rather one whose file was changed: what is
        read in the place of rows is broken in many ways."""
        last = next((found for found in reversed(incidents) if CHANGED in found.cause), incidents[-1])
        error = cls(f"{what}; the last: {last.origin}: {last.cause}")
        error.incidents = tuple(incidents)
        return error


class Budget:
    """Counts draws and incidents; stops a run whose data are mostly bad."""

    MIN_DRAWN = 100
    """Below this many draws a share says nothing."""
    WORTH_A_WORD = 0.05
    """Share of bad samples from which on a run tells of them before its end, each time that it has doubled."""

    def __init__(self, share: float, sizes: Mapping[str, int] | None = None) -> None:
        """
        Args:
            share: of bad samples that is borne; 1 bears all.
            sizes: documents of each source, of which smaller ones than ``MIN_DRAWN`` are given up once all are bad.
        """
        self.share, self.sizes = share, sizes or {}
        self.drawn = 0
        self.bad: float = 0
        """In documents, of which a piece is a part."""
        self.useless: dict[str, set[str]] = {}
        """Names of bad samples of sources that have given none to a row."""
        self.useful: set[str] = set()
        """The other sources."""
        self._told, self._last = self.WORTH_A_WORD / 2, ""
        self._lost: dict[str, Incident | None] = {}
        """The first medium that was left out of a document of each source; None where that was told."""

    def add(self, drawn: int, incidents: list[Incident], useful: Collection[str] = ()) -> None:
        """Count.

        Args:
            useful: sources of which there is a document in the rows.

        Raises:
            QuarantineFull: the share of bad samples is above the budget, or a source gives no others, which the share
                would allow it beside larger ones. They are not counted: who goes on draws them again.
        """
        drawn, bad = self.drawn + drawn, self.bad + sum(incident.share for incident in incidents)
        all_useful = self.useful.union(useful)
        useless = {source: set(bad) for source, bad in self.useless.items() if source not in all_useful}
        for incident in incidents:
            if incident.source not in all_useful and self.share < 1:
                useless.setdefault(incident.source, set()).add(incident.document)
        self._refuse_dead(useless, incidents)
        if bad and drawn >= self.MIN_DRAWN and bad > self.share * drawn:
            last = incidents[-1] if incidents else None
            because = f"; the last: {last.origin}: {last.cause}" if last else ""
            raise QuarantineFull(
                f"{_whole(bad)} of {drawn} samples were bad and data.quarantine allows a share of {self.share:g}"
                f"{because}"
            )
        self.drawn, self.bad, self.useless, self.useful = drawn, bad, useless, all_useful
        self._last = f"{incidents[-1].origin}: {incidents[-1].cause}" if incidents else self._last

    def note_lost(self, lost: Iterable[Incident]) -> None:
        """Media that were left out of documents, which no share counts."""
        for medium in lost:
            self._lost.setdefault(medium.source, medium)

    def warnings(self) -> Iterator[str]:
        """What is news: many bad samples, and sources of whose documents media are left out, each once."""
        if (many := self.warning()) is not None:
            yield many
        for source, first in self._lost.items():
            if first is not None:
                yield (
                    f"{source}: media that cannot be used are left out of their documents (missing_media), each with "
                    f"its cause in quarantine.jsonl; the first: {first.origin}: {first.cause}"
                )
        self._lost = dict.fromkeys(self._lost)

    def warning(self) -> str | None:
        """What to say where many samples are bad, and that is news."""
        if self.drawn < self.MIN_DRAWN or self.bad < 2 * self._told * self.drawn:
            return None
        self._told = self.bad / self.drawn
        last = f"; the last: {self._last}" if self._last else ""
        bad = f"{_whole(self.bad):,} of {self.drawn:,} samples"
        return f"{bad} so far were bad and are left out (quarantine.jsonl){last}"

    def _refuse_dead(self, useless: Mapping[str, Collection[str]], incidents: Sequence[Incident]) -> None:
        for incident in reversed(incidents):
            size = self.sizes.get(incident.source)
            if (count := len(useless.get(incident.source, ()))) >= min(size or self.MIN_DRAWN, self.MIN_DRAWN):
                of = f"its {count}" if count == size else f"the first {count}"
                raise QuarantineFull(
                    f"{incident.source}: none of {of} samples can be used; the last: {incident.origin}: "
                    f"{incident.cause}; mend this source or leave it out (data.quarantine=1 bears it)"
                )

    def state(self) -> dict[str, Any]:
        by_source = {"useless": {s: sorted(bad) for s, bad in self.useless.items()}, "useful": sorted(self.useful)}
        bad = int(self.bad) if float(self.bad).is_integer() else self.bad  # as versions before read it
        return {"drawn": self.drawn, "bad": bad, **by_source}

    def load(self, state: dict[str, Any]) -> None:
        self.drawn, self.bad = state["drawn"], state["bad"]
        self.useless = {source: set(bad) for source, bad in state.get("useless", {}).items()}  # older ones have none
        self.useful = set(state.get("useful", ()))


def _whole(bad: float) -> int:
    """Of parts of documents as many as are to be told."""
    return math.ceil(bad - 1e-6)


def incident_row(incident: Incident, step: int) -> dict[str, Any]:
    """A row of ``quarantine.jsonl``."""
    return {"step": step, **incident.told()}
