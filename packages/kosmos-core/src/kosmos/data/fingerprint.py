"""What tells the documents of a source, and their order, from others: a run goes on among the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b

from kosmos.data.document import Codes, Document, Mark, Media, Source, StoredMedia, Text, is_written
from kosmos.data.foreign import called, calling, said
from kosmos.errors import DataError, SampleError

LOOKED_AT = 16
"""Documents of a source by which it is told from others, where it does not tell itself."""
READS = 32
"""Of documents, where all that are looked at are read again to see whether they are the same: of fewer each is read
more often, since two draws of a few prompts may be alike by chance."""


def fingerprint_of(source: Source) -> str | None:
    """What ``source.fingerprint()`` says; None where it has no such method, or does not know.

    Raises:
        DataError: it raises, or gives something else.
    """
    found = said(source, "fingerprint")
    if found is not None and not isinstance(found, str):
        raise DataError(f"{source.name}: {called(source, 'fingerprint')}: expected a text or None, got {found!r:.80}")
    return found


def fingerprint(identities: bytes, files: Sequence[tuple[str, int]]) -> str:
    """Of rows in their order.

    Args:
        identities: of the rows.
        files: names of the files that rows lie in, with how many each holds. What all names begin with does not count:
            data may be moved.
    """
    there = [(name, rows) for name, rows in files if rows]
    shared = len(os.path.commonprefix([name for name, _ in there]))  # noqa: RUF071  characters are meant
    told = "\n".join(f"{rows} {name[shared:]}" for name, rows in there).encode("utf-8", "surrogateescape")
    return blake2b(identities + told, digest_size=8).hexdigest()


def tells_itself(source: Source) -> bool:
    """Whether it has a method that ``fingerprint_of`` asks."""
    return callable(getattr(source, "fingerprint", None))


def sampled_fingerprint(source: Source, moved: Callable[[], None] = lambda: None) -> str | None:
    """What tells a source that does not tell itself: some of its documents, which are read for it.

    None where these are others when they are read again, as of a source that draws its prompts: of such a one nothing
    but its name and length stays.

    Args:
        moved: called before each document.

    Raises:
        DataError: the source cannot be read at all.
    """
    last = len(source) - 1
    rows = sorted({number * last // (LOOKED_AT - 1) for number in range(LOOKED_AT)}) if last >= 0 else []

    def read() -> str:
        return digest_of(_read(source, row, moved) for row in rows)

    first = read()
    more = READS // len(rows) - 1 if rows else 0
    return first if all(read() == first for _ in range(more)) else None


def _read(source: Source, row: int, moved: Callable[[], None]) -> Document | None:
    """A document; None where it cannot be used. Why not does not count: the words may be others in each process."""
    moved()
    try:
        with calling(source, "document"):
            document = source.document(row)
    except SampleError:
        return None
    return document if isinstance(document, Document) else None


def digest_of(documents: Iterable[Document | None]) -> str:
    """Of documents in their order: origins, weights, texts and which of them are learned, and kinds of media.

    What media hold is not read, so that it takes microseconds a document.
    """
    digest = blake2b(digest_size=8)
    for document in documents:
        told = None if document is None else _told(document)
        digest.update(ascii(told).encode() + b"\n")  # as repr, but the same in all versions of Python
    return digest.hexdigest()


def _told(document: Document) -> list[object]:
    """What counts of it. Parts that none is made of, such as strings, are left to whoever trains on it to refuse."""
    found: list[object] = [str(document.origin), float(document.weight), *_told_of(document.segments)]
    return [*found, "rejected", *_told_of(document.rejected)] if document.rejected else found


def _told_of(segments: object) -> Iterator[object]:
    for segment in segments if isinstance(segments, tuple | list) else ():
        if isinstance(segment, Text | Mark):
            what = segment.text if isinstance(segment, Text) else segment.name
            yield type(segment).__name__, str(what), bool(segment.train)
        elif isinstance(segment, Codes):
            yield segment.modality, tuple(segment.codes.tolist()), bool(segment.train)
        elif isinstance(segment, Media | StoredMedia) and is_written(segment):
            yield segment.modality, "written", bool(segment.train)
        else:
            yield str(getattr(segment, "modality", type(segment).__name__))
