"""Documents that are the same as others in text and media, whatever they are called."""

from __future__ import annotations

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

    def told(self) -> str:
        """For a person."""
        line = f"{self.repeated:,} of {self.documents:,} documents repeat others in text and media"
        if not self.held_out:
            return line
        return f"{line}; {self.held_out_and_trained:,} of {self.held_out:,} held-out ones are also trained on"


def find_duplicates(
    sources: Sequence[Source],
    held_out: Sequence[Source],
    advance: Callable[[int, int], object] = lambda more, of: None,
    refused: Collection[tuple[str, str]] = (),
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
    """
    total = sum(map(len, (*sources, *held_out)))

    def digests(parts: Sequence[Source]) -> NDArray[np.uint64]:
        found, count = np.empty(sum(map(len, parts)), np.uint64), 0
        for source in parts:
            for row in range(len(source)):
                try:
                    with calling(source, "document"):
                        document = source.document(row)
                    is_usable = isinstance(document, Document) and (source.name, document.origin) not in refused
                    if is_usable:  # else it is of no use, which is told as it is decoded
                        found[count] = _digest(document)
                        count += 1
                except SampleError:  # is named by whoever decodes it
                    pass
                advance(1, total)
        return found[:count]

    trained, scored = digests(sources), digests(held_out)
    every = np.concatenate([trained, scored])
    repeated = len(every) - len(np.unique(every))
    return Duplicates(len(every), repeated, len(scored), int(np.isin(scored, trained).sum()))


def _digest(document: Document) -> int:
    """64 bits of what a model is shown and learns of it. Raises SampleError where a medium cannot be read."""
    digest = blake2b(digest_of([replace(document, origin="", weight=1.0)]).encode(), digest_size=8)
    for medium in document.media:
        digest.update(ascii((medium.modality, medium.clip, medium.rate_hz, _of_medium(medium))).encode())
    return int.from_bytes(digest.digest(), "little")


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
