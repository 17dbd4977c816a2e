"""Media that wait in memory until their row is filled: bytes out of rows, base64, and archives whose headers are read.

A look-ahead of films in a tar file would be many gigabytes a lane. Beyond ``MOST_HELD_BYTES`` the bytes of what waits
are let go, and are read again when it is decoded.
"""

from __future__ import annotations

from dataclasses import replace

from kosmos.data.document import Document, Media, StoredMedia, is_written
from kosmos.data.plan import DocumentPlan
from kosmos.errors import SampleError

MOST_HELD_BYTES = 256 << 20
"""Of media that the documents which wait in a lane hold."""


def let_go(plan: DocumentPlan) -> DocumentPlan:
    """The plan without the bytes of its media."""
    media = tuple(replace(m, media=_without_bytes(m.media)) for m in plan.media)
    return replace(plan, media=media, let_go=True)


def _without_bytes(media: Media | StoredMedia) -> Media | StoredMedia:
    return replace(media, source=b"") if isinstance(media, Media) else media


def read_again(plan: DocumentPlan, document: Document) -> DocumentPlan:
    """The plan with the media of its document.

    Raises:
        SampleError: it has others than when it was planned.
    """
    found = tuple(medium for medium in document.media if not is_written(medium))
    if plan.is_part:
        found = found[plan.first_media : plan.first_media + len(plan.media)]
    if [m.modality for m in found] != [m.media.modality for m in plan.media]:
        raise SampleError("holds other media than when it was planned; its file has changed")
    media = tuple(replace(m, media=medium) for m, medium in zip(plan.media, found, strict=True))
    return replace(plan, media=media, let_go=False)
