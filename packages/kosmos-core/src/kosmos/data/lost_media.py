"""Documents that are learned without those of their media that cannot be used. No torch, no decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kosmos.data.document import Document, Media, Segment, StoredMedia, Text, is_written
from kosmos.data.page_document import PageDocument
from kosmos.data.which_medium import naming
from kosmos.errors import SampleError


def without_lost(
    document: PageDocument, plan: Callable[[Media | StoredMedia], object]
) -> tuple[Document, tuple[str, ...]]:
    """The document without the media that cannot be planned, and why each of them is left out, what its source left
    out among them.

    Args:
        plan: raises SampleError of a medium that cannot be used.

    Raises:
        SampleError: none of its media can be used.
    """
    media = list(document.media)
    lost, segments = list(document.lost), list[Segment]()
    number, is_behind_gap = 0, False
    for segment in document.segments:
        if isinstance(segment, Media | StoredMedia):
            number += 1
            try:
                if not is_written(segment):
                    plan(segment)
            except SampleError as error:
                lost.append(str(naming(error, number - 1, media, document.origin)))
                is_behind_gap = True
                continue
        elif isinstance(segment, Text) and is_behind_gap and segments and isinstance(segments[-1], Text):
            segment = Text((document.between or "") + segment.text, segment.train)
        segments.append(segment)
        is_behind_gap = False
    left = Document(document.origin, tuple(segments), document.references, document.weight, document.goes_on)
    if lost and not any(left.media):
        raise SampleError(none_left(lost))
    return left, tuple(lost)


def none_left(lost: Sequence[str]) -> str:
    """What to say of a document none of whose media can be used, as far as it has some: its text alone may be about
    them, and where a whole folder is missing nothing but texts would be learned."""
    return lost[0] if len(lost) == 1 else f"none of its {len(lost)} media can be used; the first: {lost[0]}"
