"""Documents with media that are longer than a row, cut between their segments: no medium is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from kosmos.data.document import Document, Media, Segment, StoredMedia
from kosmos.data.document_plan import DocumentPlan


def parts_of(
    document: Document, plan: DocumentPlan, ends: Sequence[int], most: int, max_cells: Mapping[str, int]
) -> Iterator[Document]:
    """Documents of as many segments as a row holds. Only the last has an end that is learned. Media at the end of one
    begin the next, as what is said of them mostly follows.

    Args:
        plan: of the whole.
        ends: tokens up to the end of each segment.
        most: tokens of a document.
        max_cells: most cells of a stream in a row.
    """
    segments = document.segments
    tokens = [end - begin for begin, end in zip([1, *ends], ends, strict=False)]  # the first is behind the beginning
    cells = list(accumulate(_cells_of(segments, plan), lambda before, own: before + own, initial=Counter[str]()))
    sums = list(accumulate(tokens, initial=0))

    def fits(begin: int, end: int) -> bool:
        if sums[end] - sums[begin] + 2 > most:  # with a beginning and an end
            return False
        return all(cells[end][stream] - cells[begin][stream] <= limit for stream, limit in max_cells.items())

    begin = 0
    while begin < len(segments):
        end = begin + 1
        while end < len(segments) and fits(begin, end + 1):
            end += 1
        if end < len(segments):
            end = _behind_text(segments, begin, end) or end
        origin = f"{document.origin} (segments {begin}-{end})"
        yield replace(document, origin=origin, segments=segments[begin:end], goes_on=end < len(segments))
        begin = end


def as_pieces(plans: Sequence[DocumentPlan]) -> list[DocumentPlan]:
    """The plans of all parts of a document as pieces of it."""
    found, media, counts = [], 0, True
    for plan in plans:
        learned = bool(plan.train.any())
        part = replace(plan, answer_start=None, is_part=True, first_media=media)
        found.append(replace(part, share=1 / len(plans), counts=counts and learned))
        media, counts = media + len(plan.media), counts and not learned
    return found


def _cells_of(segments: Sequence[Segment], plan: DocumentPlan) -> Iterator[Counter[str]]:
    media = iter(plan.media)
    for segment in segments:
        own = next(media) if isinstance(segment, Media | StoredMedia) else None
        yield Counter() if own is None else Counter({own.stream: own.plan.cells})


def _behind_text(segments: Sequence[Segment], begin: int, end: int) -> int | None:
    """The end of the last text; None where there is none."""
    texts = (number + 1 for number in range(begin, end) if not isinstance(segments[number], Media | StoredMedia))
    return max(texts, default=None)
