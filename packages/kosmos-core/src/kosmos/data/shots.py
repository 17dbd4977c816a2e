"""Questions with their right answers in front of another question (few-shot): which ones, and how they are laid out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np

from kosmos.data.document import Codes, FileSpan, Mark, Media, Segment, StoredMedia, Text
from kosmos.data.marks import END, SYSTEM
from kosmos.errors import SampleError

BETWEEN = "\n\n"
"""Behind each example that is no chat, as lm-evaluation-harness has it."""
SEED = 1234
MOST_HASHED = 1 << 16
"""Bytes of each end of a file that tell it from most others of its size."""
READ_AT_ONCE = 1 << 22
FORMAT = 2
"""Bytes at the beginning of a file that are of its format: others, such as sizes, follow."""


def drawn(size: int, question: int) -> Iterator[int]:
    """All numbers below ``size``, in an order that hangs on the number of the question alone."""
    draw, seen = random.Random(f"{SEED} {question}"), set[int]()
    while len(seen) < size:
        number = draw.randrange(size)
        if number not in seen:
            seen.add(number)
            yield number


def is_same(one: Sequence[Segment], other: Sequence[Segment]) -> bool:
    """Whether two questions ask the same about the same media, be these in other files of the same bytes."""
    if not asks_the_same(one, other):
        return False
    media = ([part for part in segments if isinstance(part, Media | StoredMedia)] for segments in (one, other))
    return all(_is_same_medium(*pair) for pair in zip(*media, strict=True))


def asks_the_same(one: Sequence[Segment], other: Sequence[Segment]) -> bool:
    """Whether two questions ask the same in words; of media only their modality is compared."""
    return _words(one) == _words(other)


def _words(segments: Sequence[Segment]) -> list[object]:
    return [_word(part) for part in segments]


def _word(part: Segment) -> object:
    match part:
        case Text(text):
            return text
        case Mark():
            return part
        case Codes(modality, codes):
            return modality, *codes.tolist()
    return part.modality, part.clip


def may_be_same(one: Sequence[Segment], other: Sequence[Segment]) -> bool:
    """Whether two questions ask the same in words, and their media are the same or cannot be told apart: those in files
    of two formats are not compared, nor those that are not there."""
    if not asks_the_same(one, other):
        return False
    media = ([part for part in segments if isinstance(part, Media | StoredMedia)] for segments in (one, other))
    return all(_is_same_medium(*pair) or not _can_be_told_apart(*pair) for pair in zip(*media, strict=True))


def _can_be_told_apart(one: Media | StoredMedia, other: Media | StoredMedia) -> bool:
    """Whether they are held alike, so that two of other bytes are two."""
    if isinstance(one.source, np.ndarray) or isinstance(other.source, np.ndarray):
        return isinstance(one.source, np.ndarray) and isinstance(other.source, np.ndarray)
    try:
        return _read(one.source, 0, FORMAT) == _read(other.source, 0, FORMAT)
    except (OSError, SampleError):
        return False


def _is_same_medium(one: Media | StoredMedia, other: Media | StoredMedia) -> bool:
    if one.source is other.source:
        return True
    if isinstance(one.source, np.ndarray) or isinstance(other.source, np.ndarray):
        return isinstance(one.source, np.ndarray) and np.array_equal(one.source, other.source)  # type: ignore[arg-type]
    if one.source == other.source:
        return True
    try:
        if (size := _size(one.source)) != _size(other.source):
            return False
        # Most that differ do so at their ends, and long files are not read for it.
        return all(_hash(one.source, most) == _hash(other.source, most) for most in (MOST_HASHED, size))
    except (OSError, SampleError):  # of files that are not there, which is told where they are shown
        return False


def _size(source: bytes | Path | FileSpan) -> int:
    if isinstance(source, Path):
        return source.stat().st_size
    return source.nbytes if isinstance(source, FileSpan) else len(source)


def _hash(source: bytes | Path | FileSpan, most: int) -> bytes:
    """Of so many bytes of each end."""
    if isinstance(source, bytes):
        return _hash_of(source, most)
    return _hash_of_file(source, source.stat().st_mtime_ns if isinstance(source, Path) else 0, most)


@lru_cache(maxsize=8192)
def _hash_of_file(source: Path | FileSpan, changed: int, most: int) -> bytes:
    """Of a file that was changed then."""
    return _hash_of(source, most)


def _hash_of(source: bytes | Path | FileSpan, most: int) -> bytes:
    size, found = _size(source), blake2b()
    parts = [(0, size)] if size <= 2 * most else [(0, most), (size - most, size)]
    for begin, end in parts:
        for at in range(begin, end, READ_AT_ONCE):
            found.update(_read(source, at, min(READ_AT_ONCE, end - at)))
    return found.digest()


def _read(source: bytes | Path | FileSpan, begin: int, nbytes: int) -> bytes:
    if isinstance(source, bytes):
        return source[begin : begin + nbytes]
    span = source if isinstance(source, FileSpan) else FileSpan(source, 0, source.stat().st_size)
    return FileSpan(span.path, span.begin + begin, min(nbytes, span.nbytes - begin), span.state).read()


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
