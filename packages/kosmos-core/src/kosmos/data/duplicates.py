"""Documents that are the same as others in text and media, or are about the same media, whatever they are called."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b, file_digest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Document, FileSpan, Media, MediaSource, Source, StoredMedia
from kosmos.data.fingerprint import digest_of
from kosmos.data.foreign import calling
from kosmos.data.media_in_common import advice_on, are_common
from kosmos.data.mixture import origin_of
from kosmos.data.sources.source import RowSource
from kosmos.errors import SampleError

KEPT = 4096
"""Files whose digests are held: many documents may be stretches of one film."""


@dataclass(frozen=True)
class Duplicates:
    """How many documents are the same as others; those that cannot be used are none."""

    documents: int
    """That were compared."""
    repeated: int
    """Of these, such as are the same as one before them."""
    held_out: int
    """Of those that were compared, such as are scored."""
    held_out_and_trained: int
    """Of the held-out ones, such as are also trained on."""
    about_trained_media: int = 0
    """Of the other held-out ones, such as are about media, or the same pieces of them, all of which are trained on, but
    for what very many documents have, such as a logo."""
    same_ids: int = 0
    """Documents whose row has the id of another before it, of those that were compared."""
    advice: str = ""
    """What to do about these; empty where there are none, or nothing is known."""

    def told(self) -> str:
        """For a person."""
        line = f"{self.repeated:,} of {self.documents:,} documents repeat others in text and media"
        line += f", {self.same_ids:,} have the id of another" if self.same_ids else ""
        if not self.held_out:
            return line
        line = f"{line}; {self.held_out_and_trained:,} of {self.held_out:,} held-out ones are also trained on"
        if not self.about_trained_media:
            return line
        return f"{line}, and {self.about_trained_media:,} are about media that are, under other texts{self.advice}"


def find_duplicates(
    sources: Sequence[Source],
    held_out: Sequence[Source],
    advance: Callable[[int, int], object] = lambda more, of: None,
    refused: Collection[tuple[str, str]] = (),
    limit: Callable[[str, str, Callable[[], None]], None] = lambda source, origin, read: read(),
) -> Duplicates:
    """Compare all documents, by 8 bytes each.

    Media are read, and compared by their bytes, so that files of other names may be the same. Two documents that differ
    in anything are taken for the same once in about 10^19 pairs.

    Args:
        sources: what is trained on.
        held_out: what is scored.
        advance: told of how many documents more were compared, of how many there are.
        refused: source and origin of documents that cannot be used, for what their media would take among others: these
            are not read here.
        limit: reads a document of a source and an origin; where it raises SampleError that one is not compared.
    """
    total = sum(map(len, (*sources, *held_out)))

    def digests(parts: Sequence[Source], of_media: Callable[[int, Sequence[int]], object]) -> NDArray[np.uint64]:
        found, count = np.empty(sum(map(len, parts)), np.uint64), 0
        for number, source in enumerate(parts):
            for row in range(len(source)):
                advance(1, total)
                if (source.name, origin := origin_of(source, row)) in refused:  # it may be one at which reading stands
                    continue
                read = _Read(source, row, refused)
                try:
                    limit(source.name, origin, read)
                except SampleError:  # is named by whoever decodes it
                    continue
                if read.is_usable:  # else it is of no use, which is told as it is decoded
                    found[count] = read.digest
                    count += 1
                    of_media(number, read.media)
                    ids.append(read.id)
        return found[:count]

    known, ids = array("Q"), array("Q")
    of_scored: list[tuple[int, Sequence[int]]] = []
    trained = digests(sources, lambda _, media: known.extend(media))
    scored = digests(held_out, lambda number, media: of_scored.append((number, media)))
    every = np.concatenate([trained, scored])
    repeated = len(every) - len(np.unique(every))
    is_trained = np.isin(scored, trained)
    media, counts = np.unique(np.frombuffer(known, np.uint64), return_counts=True)
    common = are_common(counts, len(trained))
    shared = _about(media, media[common], of_scored, is_trained)
    advice = advice_on(held_out[min(shared)]) if shared and not common.any() else ""
    of_rows = np.frombuffer(ids, np.uint64)
    of_rows = of_rows[of_rows > 0]
    same_ids = len(of_rows) - len(np.unique(of_rows))
    return Duplicates(len(every), repeated, len(scored), int(is_trained.sum()), len(shared), same_ids, advice)


class _Read:
    """Reads a document, and what is compared of it."""

    def __init__(self, source: Source, row: int, refused: Collection[tuple[str, str]]) -> None:
        self.source, self.row, self.refused = source, row, refused
        self.is_usable = False

    def __call__(self) -> None:
        """Raises SampleError where it cannot be read."""
        with calling(self.source, "document"):
            document = self.source.document(self.row)
        if isinstance(document, Document) and (self.source.name, document.origin) not in self.refused:
            self.digest, self.media = _digest(document)
            self.id = _of_id(self.source, self.row)
            self.is_usable = True


def _of_id(source: Source, row: int) -> int:
    """64 bits of the own id of a row among those of its source; 0 where it has none. Raises SampleError where it cannot
    be read."""
    identity = source.id_of(row) if isinstance(source, RowSource) and not source.cuts_texts else None
    if not isinstance(identity, str | int):
        return 0
    return int.from_bytes(blake2b(ascii((source.name, str(identity))).encode(), digest_size=8).digest(), "little")


def _about(
    known: NDArray[np.uint64],
    common: NDArray[np.uint64],
    scored: Sequence[tuple[int, Sequence[int]]],
    is_trained: NDArray[np.bool_],
) -> list[int]:
    """The number of the source of each document that is not itself trained on, and of which all media are.

    Args:
        known: media that are trained on.
        common: those of them that tell nothing of a document.
    """
    media = np.unique(np.array([medium for _, its in scored for medium in its], np.uint64))
    shared, passed = set(media[np.isin(media, known)].tolist()), set(common.tolist())
    found = zip(scored, is_trained.tolist(), strict=True)
    own = ((number, set(its) - passed, same) for (number, its), same in found)
    return [number for number, its, same in own if its and not same and its <= shared]


def _digest(document: Document) -> tuple[int, list[int]]:
    """64 bits of what a model is shown and learns of it, and of each of its media. Raises SampleError where a medium
    cannot be read."""
    digest = blake2b(digest_of([replace(document, origin="", weight=1.0)]).encode(), digest_size=8)
    media: list[int] = []
    for medium in document.media:
        told = ascii((medium.modality, medium.clip, medium.rate_hz, _of_medium(medium))).encode()
        digest.update(told)
        media.append(int.from_bytes(blake2b(told, digest_size=8).digest(), "little"))
    return int.from_bytes(digest.digest(), "little"), media


def _of_medium(medium: Media | StoredMedia) -> str:
    source: MediaSource | FileSpan = medium.source
    match source:
        case Path():
            return _of_file(source)
        case FileSpan():
            return blake2b(source.read(), digest_size=8).hexdigest()
        case np.ndarray():
            told = f"{source.dtype} {source.shape} "
            return told + blake2b(np.ascontiguousarray(source).tobytes(), digest_size=8).hexdigest()
    return blake2b(source, digest_size=8).hexdigest()


@lru_cache(KEPT)
def _of_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, lambda: blake2b(digest_size=8)).hexdigest()
    except OSError as error:
        raise SampleError(f"{path.name} cannot be read ({error.strerror})") from error
