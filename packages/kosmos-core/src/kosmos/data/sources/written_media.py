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


def holds_codes(item: object, modality: str, taken: Taken) -> bool:
    """Whether a row holds codes in the place of a medium."""
    return modality in taken.written and isinstance(item, Mapping) and item.get(CODES) is not None


def read_codes(modality: str, item: Mapping[str, Any]) -> Codes:
    """The codes that a row holds. Raises SampleError where they are no whole numbers."""
    try:
        return Codes(modality, np.asarray(item[CODES]))
    except (NoSuchPart, ValueError) as error:
        raise SampleError(f"{CODES}: expected a list of whole numbers, got {item[CODES]!r:.60}") from error
