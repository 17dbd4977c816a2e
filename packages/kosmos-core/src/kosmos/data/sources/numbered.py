"""Tags that say by its number which medium stands there, such as ``<image 2>`` and ``<image_2>`` of MMMU and BLINK."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, cast

from kosmos.data.document import Codes, Media, Segment, StoredMedia, Text
from kosmos.data.sources.columns import Row
from kosmos.data.sources.media import holds_medium
from kosmos.errors import SampleError
from kosmos.names import listed


class MediaList(list[Any]):
    """Media of several columns, null where one is missing."""

    def __init__(self, media: Iterable[Any], numbers: Sequence[int]) -> None:
        super().__init__(media)
        self.numbers = tuple(numbers)
        """By which texts name them."""


def held_numbers(value: Any, column: str, modality: str) -> list[int]:
    """The numbers of the media that a column holds: from 1 on, or that of the column, where it is one."""
    if isinstance(value, MediaList):
        return [number for number, one in zip(value.numbers, value, strict=True) if holds_medium(one)]
    if isinstance(value, list | tuple):
        return [number for number, one in enumerate(value, 1) if holds_medium(one)]
    number = number_of(column, modality)
    return [1 if number is None else number] if holds_medium(value) else []


_LAST = re.compile(r"\d+$")


def number_of(column: str, modality: str) -> int | None:
    """The number of a column that is called as a modality is, and numbered: ``image_2``, ``image 2``, ``image2``."""
    found = re.fullmatch(rf"{re.escape(modality)}[ _-]?(\d{{1,3}})", column, re.IGNORECASE)
    return int(found[1]) if found else None


def numbers_of(columns: Sequence[str], counts: Sequence[int]) -> list[int]:
    """Of media in several columns: those that the columns end with, if all do and hold one each, else from 1 on.

    Args:
        counts: how many media each holds.
    """
    found = [int(match[0]) for name in columns if (match := _LAST.search(name)) and len(match[0]) < 4]
    if len(found) == len(columns) == len({*found}) and all(count == 1 for count in counts):
        return found
    return list(range(1, sum(counts) + 1))


@lru_cache(maxsize=64)
def tag_of(modalities: tuple[str, ...]) -> re.Pattern[str]:
    """Finds such tags, and those without a number: groups of what is meant and of its number. A line end beside one is
    no part of the text, nor are spaces."""
    names = "|".join(map(re.escape, modalities))
    return re.compile(rf"(?: +|(?<!\s)\n)?<\|?({names})(?:[ _-]?(\d{{1,3}}))?\|?>(?: +|\n(?!\s))?")


def in_places(segments: Sequence[Segment], numbers: Mapping[str, Sequence[int]]) -> tuple[Segment, ...]:
    """A question with its media where its text has their tags; those that no tag names stay in front, in their order.

    A tag that stands twice shows its medium twice. One without a number is the next medium.

    Args:
        segments: media, and the text behind them.
        numbers: modality to the numbers of its media, of those that the row has columns for.

    Raises:
        SampleError: a tag's number is that of no medium, tags without numbers are not as many as the media, or some
            tags of a modality have numbers, and others none.
    """
    text = segments[-1] if segments else None
    if not numbers or not isinstance(text, Text):
        return tuple(segments)
    media = [segment for segment in segments[:-1] if isinstance(segment, Media | StoredMedia | Codes)]
    held = {m: [one for one in media if one.modality == m] for m in numbers}
    by_number = {m: dict(zip(_as_many(numbers[m], held[m]), held[m], strict=True)) for m in numbers}
    tags = [(found[1], found[2]) for found in tag_of(tuple(numbers)).finditer(text.text)]
    plain = {m for m, number in tags if number is None}
    for modality in {m for m, _ in tags}:
        _check(modality, [number for m, number in tags if m == modality], [*by_number[modality]])
    plain -= {m for m in plain if not held[m]}
    meant = {m for m, number in tags if number is not None} | plain
    if not meant:
        return tuple(segments)
    nexts = {m: iter(held[m]) for m in plain}
    found, named, at = list[Segment](), list[Segment](), 0
    for match in tag_of(tuple(sorted(meant))).finditer(text.text):
        if piece := text.text[at : match.start()]:
            found.append(Text(piece, text.train))
        one = next(nexts[match[1]]) if match[2] is None else by_number[match[1]][int(match[2])]
        found.append(one)
        named.append(one)
        at = match.end()
    if rest := text.text[at:]:
        found.append(Text(rest, text.train))
    return (*(one for one in media if not any(one is other for other in named)), *found)


def _as_many(numbers: Sequence[int], media: Sequence[Segment]) -> Sequence[int]:
    """``numbers``, or those from 1 on where a value has become more media than it looks like."""
    return numbers if len(numbers) == len(media) else range(1, len(media) + 1)


def _check(modality: str, tags: Sequence[str | None], numbers: Sequence[int]) -> None:
    """Raises SampleError where the tags of a modality cannot be the places of its media."""
    said = {int(tag) for tag in tags if tag is not None}
    if said and None in tags:
        raise SampleError(f"has both <{modality}> and <{modality} {min(said)}>; number all places, or none")
    if absent := said.difference(numbers):
        there = f"has {listed(map(str, numbers))}" if numbers else "has none"
        raise SampleError(
            f"<{modality} {min(absent)}>: the row {there} of its media; take the tag out, or name the columns of "
            f"all (columns: {{{modality}: [COLUMN, COLUMN]}})"
        )
    if not said and numbers and len(tags) != len(numbers):
        raise SampleError(
            f"<{modality}> stands {len(tags)} times, and the row holds {len(numbers)} of its media; write a place for "
            "each, or none"
        )


def with_plain_places(row: Row, texts: Sequence[str], column: str, modality: str) -> Row:
    """A row whose texts have ``<image>`` for ``<image 2>``, and its media in the order of these places, for the ways of
    reading that go by the order. Media without a place begin what is asked first. The same where no text has a number.

    Args:
        texts: columns of texts, or of turns of a chat, in their order.
        column: of the media.

    Raises:
        SampleError: as of ``in_places``.
    """
    found = tag_of((modality,))
    tags = [match[2] for name in texts for text in _asked(row[name]) for match in found.finditer(text)]
    if all(tag is None for tag in tags):
        return row
    numbers = held_numbers(row[column], column, modality)
    _check(modality, tags, numbers)
    media = dict(zip(numbers, filter(holds_medium, row[column]), strict=True))
    order = [int(tag) for tag in tags if tag is not None]
    left = [number for number in numbers if number not in order]
    made = cast(dict[str, Any], copy(row))  # a row of an archive knows the files of its sample
    for name in texts:
        made[name] = _renamed(row[name], modality)
    if left and isinstance(made[texts[0]], str):
        made[texts[0]] = f"<{modality}>\n" * len(left) + made[texts[0]]
        order = [*left, *order]
    else:
        order += left  # of a chat such a row is refused
    made[column] = [media[number] for number in order]
    return made


def _asked(value: Any) -> Iterator[str]:
    """The texts in a column of text, or in one of turns."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key in _KEYS:
            yield from _asked(value.get(key))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _asked(one)


_KEYS = ("content", "value", "text")
"""Under which turns, and their parts, have texts."""


def _renamed(value: Any, modality: str) -> Any:
    """``value`` with tags without numbers."""
    if isinstance(value, str):
        return re.sub(rf"<\|?{re.escape(modality)}[ _-]?\d{{1,3}}\|?>", f"<{modality}>", value)
    if isinstance(value, Mapping):
        return {key: _renamed(inner, modality) if key in _KEYS else inner for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(one, modality) for one in value]
    return value
