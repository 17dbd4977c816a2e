"""Which of a document's media an error is about: what processors say names none of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kosmos.data.document import Media, StoredMedia
from kosmos.errors import SampleError


def naming(error: SampleError, number: int, media: Sequence[Media | StoredMedia], origin: str) -> SampleError:
    """The error with the medium's place among those of its modality, and the name of its file, in front.

    Args:
        error: what a processor raised of it.
        number: of the medium among ``media``, from 0 on.
        media: all those of the document, in their order. Where the error names the file itself, there is nothing to
            add.
        origin: of the document, which may be the file of its only medium.
    """
    medium = media[number]
    file = medium.source.name if isinstance(medium.source, Path) else ""
    known = file and file in str(error)
    if known or (len(media) < 2 and (not file or file in origin)):
        return error
    alike = [n for n, other in enumerate(media) if other.modality == medium.modality]
    place = f" {alike.index(number) + 1} of {len(alike)}" if len(alike) > 1 else ""
    return type(error)(f"{medium.modality}{place}{f' ({file})' if file else ''}: {error}")
