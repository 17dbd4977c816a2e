"""Documents with media that are longer than a row, cut between their segments: no medium is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from kosmos.data.document import Document, Media, Segment, StoredMedia, Text, is_written
from kosmos.data.document_plan import DocumentPlan
from kosmos.errors import SampleError


def parts_of(
    document: Document, plan: DocumentPlan, ends: Sequence[int], most: int, max_cells: Mapping[str, int]
) -> Iterator[Document]:
    """Documents of as many segments as a row holds. Only the last has an end that is learned. Media at the end of one
    begin the next, as what is said of them mostly follows, and so does text that is not learned, as a question.

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
            end = _behind_learned(segments, begin, end) or end
        origin = f"{document.origin} (segments {begin}-{end})"
        yield replace(document, origin=origin, segments=segments[begin:end], goes_on=end < len(segments))
        begin = end


def as_pieces(
    origin: str, parts: Sequence[Document], plans: Sequence[DocumentPlan], lost: tuple[str, ...]
) -> list[DocumentPlan]:
    """The plans of all parts of a document as pieces of it, but for those behind the last that something is learned of:
    nothing is learned with them.

    Args:
        origin: of the document.
        lost: why media were left out of it, which is told of the first piece that something is learned of.

    Raises:
        SampleError: nothing is learned of a piece in front of one of which something is.
    """
    learned = [bool(plan.train.any()) for plan in plans]
    last = max((number for number, is_learned in enumerate(learned) if is_learned), default=len(plans) - 1)
    if any(learned) and False in learned[:last]:
        piece = plans[learned.index(False)].origin.removeprefix(origin)
        raise SampleError(
            f"nothing is learned of its piece{piece}, which fills a row, and the text behind it would be learned "
            "without what it may be about; raise data.tokens_per_pack or data.cells_per_pack, or make its media "
            "smaller (it is cut by options.long_documents)"
        )
    kept, media, found = plans[: last + 1], 0, list[DocumentPlan]()
    torn = _is_torn(parts)
    for number, plan in enumerate(kept):
        is_first = number == 0 and learned[0]
        part = replace(plan, answer_start=None, is_part=True, is_torn=plan.is_torn or torn, first_media=media)
        found.append(replace(part, share=1 / len(kept), counts=is_first, lost=lost if is_first else ()))
        media += len(plan.media)
    return found


def _is_torn(parts: Sequence[Document]) -> bool:
    """Whether text that is learned stands in another part than what is said in front of it and is not learned."""
    was_asked = False
    for part in parts:
        said = [getattr(s, "train", False) for s in part.segments if is_written(s) or (isinstance(s, Text) and s.text)]
        if was_asked and said and said[0]:
            return True
        was_asked = was_asked or not all(said)
    return False


def _cells_of(segments: Sequence[Segment], plan: DocumentPlan) -> Iterator[Counter[str]]:
    media = iter(plan.media)
    for segment in segments:
        own = next(media) if isinstance(segment, Media | StoredMedia) and not is_written(segment) else None
        yield Counter() if own is None else Counter({own.stream: own.plan.cells})


def _behind_learned(segments: Sequence[Segment], begin: int, end: int) -> int | None:
    """The end of the last text that is learned; None where there is none."""
    texts = (number + 1 for number in range(begin, end) if getattr(segments[number], "train", False))
    return max(texts, default=None)
