"""Media that the assistant says in rows: learned as tokens of a codec, where the run has one of their modality."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from kosmos.data.document import Codes, Media, Segment, StoredMedia, is_written
from kosmos.data.sources.arrays import Taken
from kosmos.errors import NoSuchPart, SampleError

CODES: Final = "codes"
"""Key of an object that holds the codes of a medium, in place of a file."""


def as_written(media: Iterable[Segment], taken: Taken, *, train: bool) -> Iterator[Segment]:
    """What the assistant says, or has said before.

    Args:
        train: whether it is learned.
    """
    for segment in media:
        is_one = isinstance(segment, Media | StoredMedia | Codes) and segment.modality in taken.written
        if is_one and isinstance(segment, Codes):
            yield replace(segment, train=train)
        elif is_one and isinstance(segment, Media | StoredMedia):
            yield replace(segment, train=train, written=True)
        else:
            yield segment


def is_learned(segment: Segment) -> bool:
    """Whether it is a medium that is learned."""
    return is_written(segment) and getattr(segment, "train", False)


def is_same_written(one: Segment, other: Segment) -> bool:
    """Whether two media that are written, or of which one is, are the same, as far as they can be compared unread."""
    if isinstance(one, Codes) and isinstance(other, Codes):
        return np.array_equal(one.codes, other.codes)
    if not isinstance(one, Media | StoredMedia) or not isinstance(other, Media | StoredMedia):
        return False
    if (one.clip, one.rate_hz, is_written(one)) != (other.clip, other.rate_hz, is_written(other)):
        return False
    this, that = one.source, other.source
    if isinstance(this, np.ndarray) or isinstance(that, np.ndarray):
        return isinstance(this, np.ndarray) and isinstance(that, np.ndarray) and np.array_equal(this, that)
    return bool(this == that)


def whole(media: Iterable[Segment], modality: str, taken: Taken) -> list[Segment]:
    """Media of a place whose media are learned. Raises SampleError where none is left of them, as where a file is
    missing and ``missing_media`` leaves it out: what is said behind it would be learned in its stead."""
    found = list(media)
    if not found and modality in taken.written:
        raise SampleError(f"{modality} that is to be written is missing; leave the row out")
    return found


def holds_codes(item: object, modality: str, taken: Taken) -> bool:
    """Whether a row holds codes in the place of a medium."""
    return modality in taken.written and isinstance(item, Mapping) and item.get(CODES) is not None


def read_codes(modality: str, item: Mapping[str, Any]) -> Codes:
    """The codes that a row holds. Raises SampleError where they are no whole numbers, or a stretch of them is meant."""
    if item.get("clip") is not None:
        raise SampleError(f"clip: {CODES} are of a whole medium, got {item['clip']!r:.40} beside them; cut the codes")
    try:
        return Codes(modality, np.asarray(item[CODES]))
    except (NoSuchPart, ValueError) as error:
        raise SampleError(
            f"{CODES}: expected a list of whole numbers, those of several codebooks in turn, got {item[CODES]!r:.60}"
        ) from error
