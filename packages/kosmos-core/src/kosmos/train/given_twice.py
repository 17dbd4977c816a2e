"""Documents in memory that a run is given to train on, and to hold out as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from kosmos.data.document import Document, Source
from kosmos.data.fingerprint import digest_of, fingerprint_of
from kosmos.data.in_memory import Documents
from kosmos.data.sources.source import RowSource
from kosmos.data.spread import spread
from kosmos.errors import KosmosError, SampleError

MOST_KNOWN, MOST_LOOKED_AT = 100_000, 200
"""Documents that are trained on whose origins are compared, and those held out that are looked for among them."""


def given_twice(sources: Sequence[Source], held_out: Sequence[Source]) -> Iterator[str]:
    """Warnings of what is held out and trained on: the same source, or the same documents of others."""
    for scored in held_out:
        for trained in sources:
            if (found := _shared(trained, scored)) is not None:
                count, of = found
                what = "is" if count == of else f"holds {count:,} of {of:,} documents that were looked at, which are"
                yield (
                    f"held_out: {scored.name} {what} trained on too (sources: {trained.name}), so that its scores tell "
                    "nothing of what was not seen; Documents.split parts documents"
                )
                break


def _shared(trained: Source, scored: Source) -> tuple[int, int] | None:
    """How many of the documents that are looked at are trained on, and of how many; None where none are."""
    if trained is scored:
        return len(scored), len(scored)
    with suppress(KosmosError):  # of a source that fails others tell
        told = fingerprint_of(scored)
        if told is not None and len(trained) == len(scored) and told == fingerprint_of(trained):
            rows = spread(len(scored), 1).tolist()
            if all(_is_same(trained.document(row), scored.document(row)) for row in rows):
                return len(scored), len(scored)
    known = _by_origin(trained)
    looked_at = spread(len(scored), MOST_LOOKED_AT).tolist() if known and _tells_origins(scored) else []
    count = 0
    for row in looked_at:
        with suppress(SampleError):
            document = scored.document(row)
            same = known.get(str(document.origin), ())
            count += any(_is_same(trained.document(other), document) for other in same)
    return (count, len(looked_at)) if count else None


def _tells_origins(source: Source) -> bool:
    """Whether to ask it for documents costs little: those of plugins may be made at each call."""
    return isinstance(source, Documents | RowSource)


def _by_origin(source: Source) -> Mapping[str, Sequence[int]]:
    """Numbers of documents by their origins, of which some may be of one."""
    found: dict[str, list[int]] = {}
    for row in range(min(len(source), MOST_KNOWN)) if _tells_origins(source) else ():
        origin = source.documents[row].origin if isinstance(source, Documents) else source.origin(row)  # type: ignore[attr-defined]
        rows = found.setdefault(str(origin), [])
        if len(rows) < MOST_LOOKED_AT:
            rows.append(row)
    return found


def _is_same(one: Document, other: Document) -> bool:
    """Whether two documents say the same, and their media hold it."""
    if one is other:
        return True
    if digest_of([one]) != digest_of([other]):
        return False
    media = [*one.media], [*other.media]
    return len(media[0]) == len(media[1]) and all(
        a.clip == b.clip and _holds_same(a.source, b.source) for a, b in zip(*media, strict=True)
    )


def _holds_same(one: Any, other: Any) -> bool:
    """Whether two sources of media are the same file, or stretch of one, or hold the same."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return one is other or bool(np.array_equal(one, other))
    return bool(one == other)
