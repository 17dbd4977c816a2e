"""Questions with their right answers in front of another question (few-shot): which ones, and how they are laid out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from kosmos.data.document import FileSpan, Mark, Segment, Text
from kosmos.data.marks import END, SYSTEM

BETWEEN = "\n\n"
"""Behind each example that is no chat, as lm-evaluation-harness has it."""
SEED = 1234


def drawn(size: int, question: int) -> Iterator[int]:
    """All numbers below ``size``, in an order that hangs on the number of the question alone."""
    draw, seen = random.Random(f"{SEED} {question}"), set[int]()
    while len(seen) < size:
        number = draw.randrange(size)
        if number not in seen:
            seen.add(number)
            yield number


def is_same(one: Sequence[Segment], other: Sequence[Segment]) -> bool:
    """Whether two questions ask the same about the same media."""
    return len(one) == len(other) and [*map(_told, one)] == [*map(_told, other)]


def _told(segment: Segment) -> object:
    if isinstance(segment, Text):
        return segment.text
    if isinstance(segment, Mark):
        return segment
    source = segment.source
    return segment.modality, source if isinstance(source, bytes | Path | FileSpan) else id(source), segment.clip


def in_front(examples: Sequence[Sequence[Segment]], question: Sequence[Segment]) -> tuple[Segment, ...]:
    """The examples and the question as one, of texts that stand beside each other one text.

    Of chats the system's turn of the question comes first, and those of the examples are left out.
    """
    system, rest = _without_system(question)
    parts = [*system, *(part for one in examples for part in _without_system(one)[1]), *rest]
    told: list[Segment] = []
    for part in parts:
        last = told[-1] if told else None
        if isinstance(part, Text) and isinstance(last, Text) and not (part.train or last.train):
            told[-1] = Text(last.text + part.text)
        else:
            told.append(part)
    return tuple(told)


def _without_system(chat: Sequence[Segment]) -> tuple[Sequence[Segment], Sequence[Segment]]:
    """A system's turn in front, and what is behind it."""
    if not chat or not isinstance(chat[0], Mark) or chat[0].name != SYSTEM:
        return (), chat
    end = next(place for place, part in enumerate(chat) if isinstance(part, Mark) and part.name == END)
    return chat[: end + 1], chat[end + 1 :]
