"""Documents in memory that all hold one and the same array, as one that was filled anew for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kosmos.data.document import Document, Media, Text

MOST_LOOKED_AT = 1_000
"""Documents; of an array that is filled anew the first of them tell."""


def one_array_for_all(documents: Sequence[Document]) -> Iterator[str]:
    """Of several documents that learn something else each while the arrays of a modality are one.

    An array that some of them share may well be meant, as of several questions about one picture.
    """
    held: dict[str, set[Any]] = {}
    learned: dict[str, set[tuple[str, ...]]] = {}
    counts: dict[str, int] = {}
    for document in documents[:MOST_LOOKED_AT]:
        texts = tuple(s.text for s in document.segments if isinstance(s, Text) and s.train)
        for medium in document.media:
            if isinstance(medium, Media) and (place := _place(medium.source)) is not None:
                held.setdefault(medium.modality, set()).add(place)
                learned.setdefault(medium.modality, set()).add(texts)
                counts[medium.modality] = counts.get(medium.modality, 0) + 1
    for modality, places in held.items():
        if len(places) == 1 and len(learned[modality]) > 1:
            yield (
                f"{modality}: {counts[modality]:,} media in its documents are one and the same array, whatever is "
                "learned of them; if it was filled anew for each, give each a copy (array.copy())"
            )


def _place(source: Any) -> Any:
    """What tells memory that may change from others; None of what stays as it is."""
    if isinstance(source, np.ndarray):
        if not source.flags.writeable:
            return None
        return source.__array_interface__["data"][0], source.shape, source.strides
    if isinstance(source, bytearray):
        return id(source)
    return id(source.obj) if isinstance(source, memoryview) and not source.readonly else None
