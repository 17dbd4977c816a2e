"""What the kit does in fresh processes. No torch here: that is part of what is checked."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

from kosmos.data.decoding import decode_cells
from kosmos.data.document import Codes, Media, StoredMedia
from kosmos.data.fingerprint import fingerprint_of
from kosmos.data.plan import PlannedMedia
from kosmos.data.processor import MediaPlan
from kosmos.errors import SampleError
from kosmos.testing.child import TorchWatch
from kosmos.testing.usable import row_of


def discover(arguments: bytes) -> str | None:
    """Import plugin ``module`` and ask its hooks; the line that imported torch, or None."""
    from kosmos.discovery import Candidate, load

    name, module = pickle.loads(arguments)  # noqa: S301  of our own parent, here and below
    with TorchWatch() as watch:
        load([Candidate(name, "", "", module)])
    return watch.importer


def plan_media(arguments: bytes) -> tuple[list[MediaPlan], list[str], str | None]:
    """Plan and decode media with a processor that came by pickle.

    Returns:
        The plans, the digests of the cells, and the line that imported torch or None.
    """
    with TorchWatch() as watch:
        processor, slots, media = pickle.loads(arguments)  # noqa: S301
        plans = [processor.plan(medium) for medium in media]
        for plan in plans:
            for grid in plan.grids:
                slots(grid)
        digests = [digest(decode_cells(PlannedMedia(m, p, ""), processor)) for m, p in zip(media, plans, strict=True)]
    return plans, digests, watch.importer


def read_documents(arguments: bytes) -> tuple[list[str], str | None, str | None]:
    """Fingerprints of the first documents of a source that came by pickle (empty for a bad sample), that of itself, and
    the line that imported torch."""
    with TorchWatch() as watch:
        source, count = pickle.loads(arguments)  # noqa: S301
        found = [document_fingerprint(source, index) for index in range(count)]
        whole = fingerprint_of(source)
    return found, whole, watch.importer


def digest(cells: Any) -> str:
    """Of an array: type, shape and content."""
    head = f"{cells.dtype} {cells.shape} ".encode()
    return hashlib.blake2b(head + cells.tobytes(), digest_size=16).hexdigest()


def document_fingerprint(source: Any, index: int) -> str:
    """As of ``fingerprint``; empty where the row is a bad sample."""
    found = row_of(source, index)
    return "" if isinstance(found, SampleError) else fingerprint(found)


def fingerprint(document: Any) -> str:
    """Of what a document holds; its origin does not count."""
    parts = [_content(segment) for segment in document.segments]
    parts += ["rejected", *map(_content, document.rejected)] if document.rejected else []
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def _content(segment: Any) -> str:
    if isinstance(segment, Codes):
        return f"{segment.modality} {digest(segment.codes)} {segment.train}"
    if not isinstance(segment, Media | StoredMedia):
        return repr(segment)
    source = segment.load().source
    if isinstance(source, bytes):
        held = hashlib.blake2b(source, digest_size=16).hexdigest()
    else:
        held = digest(source) if hasattr(source, "tobytes") else str(source)
    return f"{segment.modality} {held} {segment.clip} {segment.rate_hz} {segment.written} {segment.train}"
