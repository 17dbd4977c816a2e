"""What a document asks, and what answers it. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kosmos.data.document import Codes, Document, Mark, Media, Segment, StoredMedia, Text, is_written
from kosmos.data.marks import ASSISTANT, END
from kosmos.data.turns import is_chat, is_turn
from kosmos.errors import NoSuchPart


def answered(
    document: Document,
    text: str | Sequence[Text | Media | Codes],
    *,
    origin: str | None = None,
    weight: float = 1.0,
    goes_on: bool = False,
) -> Document:
    """``document`` with ``text`` as its answer, which alone is learned; what it had as its answer is gone.

    Args:
        document: one that ends in what is learned of it, such as a row of data, or that asks and has no answer, such as
            ``chat_prompt`` gives; of a chat the end of the turn is learned, too.
        text: such as the model wrote; with media in it, a list of what it is made of (``said_parts``).
        origin: what the new one is called, where not as ``document``.
        weight: of the new one.
        goes_on: whether the text was cut off, so that no end of it is learned.

    Raises:
        NoSuchPart: an argument is something else than its type says, or the document is no chat and has something that
            is learned, but no answer at its end behind something that is not.

    Example:
        >>> from kosmos import answered, chat_prompt
        >>> right = answered(chat_prompt("What is 1 + 1?"), "2")
    """
    if not isinstance(document, Document) or not _is_answer(text):
        raise NoSuchPart(f"answered: expected a Document and a string, got {document!r:.60} and {text!r:.60}")
    asked, _ = asked_of(document)
    learned = any(getattr(segment, "train", False) for segment in document.segments)
    if learned and prompt_of(document) is None and not is_chat(document):
        raise NoSuchPart(
            f"answered: {document.origin} ends in no answer, though something in it is learned; leave that out of it, "
            "or learn of it what comes last alone"
        )
    end = (Mark(END, train=True),) if is_chat(asked) and not goes_on else ()
    parts = [Text(text)] if isinstance(text, str) else text
    said = [replace(part, train=True) for part in parts]
    segments = (*map(not_learned, asked.segments), *said, *end)
    return Document(document.origin if origin is None else origin, segments, document.references, weight, goes_on)


def _is_answer(text: object) -> bool:
    if isinstance(text, list | tuple):
        return len(text) > 0 and all(isinstance(part, Text | Media | Codes) for part in text)
    return isinstance(text, str)


def not_learned(segment: Segment) -> Segment:
    """The same, of which nothing is learned; a medium that was is still written."""
    if isinstance(segment, Media | StoredMedia) and segment.train:
        return replace(segment, train=False, written=True)
    return replace(segment, train=False) if isinstance(segment, Text | Mark | Codes) else segment


def prompt_of(document: Document) -> tuple[Document, str] | None:
    """What to continue and what is expected: the document split at its last trained texts. None where they are all."""
    segments: Sequence[Any] = document.segments
    while segments and not _is_said(segments[-1]):
        if not getattr(segments[-1], "train", False):
            return None
        segments = segments[:-1]
    begin = len(segments)
    while begin and _is_said(segments[begin - 1]) and segments[begin - 1].train:
        begin -= 1
    if begin in (0, len(segments)) or getattr(segments[begin - 1], "train", False):
        return None
    said = (getattr(segment, "text", "") for segment in segments[begin:])
    return Document(document.origin, tuple(segments[:begin])), "".join(said)


def text_answer_of(document: Document) -> tuple[Document, str] | None:
    """As ``prompt_of``, of a document whose answer is text alone; None of others, which no text is compared with."""
    return None if writes_media(document) else prompt_of(document)


def writes_media(document: Document) -> bool:
    """Whether a medium is among what is learned of it, which no text can be compared with."""
    return any(is_written(segment) and getattr(segment, "train", False) for segment in document.segments)


def _is_said(segment: Segment) -> bool:
    """Whether an answer is made of such: of texts, and of media that are learned."""
    return hasattr(segment, "text") or (is_written(segment) and getattr(segment, "train", False))


def asked_of(document: Document) -> tuple[Document, str | None]:
    """What to continue and what is expected, as ``prompt_of``; of a document without an answer all of it, and None. No
    text is expected where a medium is learned.

    A chat opens the assistant's turn, as ``chat_prompt`` does, unless it ends with one, which is its answer.
    """
    if (parts := prompt_of(document)) is not None:
        return parts[0], None if writes_media(document) else parts[1]
    turns = [place for place, segment in enumerate(document.segments) if is_turn(segment)]
    if not turns:
        return document, None
    before, last = document.segments[: turns[-1]], document.segments[turns[-1] :]
    if last[0] != Mark(ASSISTANT):
        return Document(document.origin, (*document.segments, Mark(ASSISTANT))), None
    answer = "".join(segment.text for segment in last if isinstance(segment, Text))
    return Document(document.origin, (*before, last[0])), answer or None
