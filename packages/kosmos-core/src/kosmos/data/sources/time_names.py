"""What others call the times of a piece of a medium: ``time_start`` and ``time_end`` (Kinetics), ``start_seconds`` and
``end_seconds`` (AudioSet), ``Start_timestamp`` and ``End_timestamp`` (InternVid), ``timestamp`` of two (Panda-70M),
``Begin Time (s)`` and ``End Time (s)`` (Raven), ``xmin`` and ``xmax`` (Praat).

There is no list of them, but a rule: a word for a start or an end, or for a stretch, among words that often stand
beside it, whatever the case and what is between words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kosmos.data.sources.since import is_drawn_before

_COUNTED = "frames?|samples?|ms|msecs?|millis|milliseconds"
"""Units that are no seconds."""
_BESIDE = f"(?:time|stamps?|t|in|seconds?|secs?|s|clip|segment|seg|span|chunk|scene|shot|utterance|utt|{_COUNTED})"
_EDGE = re.compile(rf"({_BESIDE}{{0,3}})(?:(start|begin|onset|from)|(end|stop|finish|until|to))({_BESIDE}{{0,3}})")
_STRETCH = re.compile(
    rf"{_BESIDE}{{0,2}}(?:(?:timestamp|segment|span|interval)(?!s$)|(?:time|clip|{_COUNTED})range){_BESIDE}{{0,2}}"
)
"""In the singular: of several times (``timestamps``) a row may have any number, and so two."""
_LENGTH = re.compile(rf"{_BESIDE}{{0,3}}(?:duration|dur){_BESIDE}{{0,3}}")
_LONG = re.compile(rf"{_BESIDE}{{0,3}}(?:length|len){_BESIDE}{{0,3}}|(?:num|n)(?:frames|samples)")
"""As ``_LENGTH``, and likelier that of something else where no start stands beside it."""
_OF_OFFSET = f"(?:t|in|seconds?|secs?|s|clip|span|scene|shot|utterance|utt|{_COUNTED})"
_FROM = re.compile(rf"{_OF_OFFSET}{{0,3}}(?:offset|seek){_OF_OFFSET}{{0,3}}")
"""A start where a length stands beside it; an offset may be an end, too. That of a time is one of a clock from that of
Greenwich, and those of segments count these."""
_UNITS = {"frames": re.compile("frame"), "samples": re.compile("sample"), "ms": re.compile("(?<!fro)ms|milli")}
_SHORT = {"ts": ("t", "start"), "te": ("t", "end"), "t0": ("t0", "start"), "t1": ("t0", "end")}
_SHORT |= {"tmin": ("tmin", "start"), "tmax": ("tmin", "end")}
_WORDS = {"from": "to", "in": "out", "first": "last"}
"""Alone they are of anything (places, prices, shares), so that no sample is bad for them."""
_SEVERAL = frozenset(("timestamps", "times", "time"))
"""Of several, or a time of day, or two years."""
_EDGES_OF_BOXES = {"xmin": "xmax"}
"""Those of a stretch where no other side of a box stands beside them."""
_OTHER_SIDES = frozenset(("ymin", "ymax"))
_PAIRS = {**_WORDS, **_EDGES_OF_BOXES}
_PAIRED = frozenset((*_PAIRS, *_PAIRS.values()))
_LONGEST = 48
"""Most letters of a name that is looked at."""
_A_DATE = 1e7
"""Seconds from which on a number is no place in a medium."""
_A_DATE_COUNTED = 1e11
"""As ``_A_DATE``, of milliseconds and samples."""
_TIMECODE = re.compile(r"(?:(\d{1,3}):)?(\d{1,3}):([0-5]?\d(?:[.,]\d+)?)")
_TWO = re.compile(r"""[\[(]\s*['"]?([\d:.]+)['"]?\s*,\s*['"]?([\d:.]+)['"]?\s*[\])]""")
"""A list of two as tables of texts have it."""


class TimeName(NamedTuple):
    """What the name of a column or a key says."""

    side: str
    """``start``, ``end``, ``stretch`` of both, ``length``, or ``from`` and ``long``, which are a start and a length
    beside one another alone."""
    beside: str
    """The words around, in which a start and its end are alike."""


class Stretch(NamedTuple):
    """Times under names by which nothing is read."""

    names: tuple[str, ...]
    """That of a start and that of its end or length, or one of both."""
    times: tuple[float, float]
    plain: bool
    """Whether they may be seconds: no timecodes, and by their names no counts of something else."""
    coded: bool
    """Whether they are timecodes, which say what they are in seconds."""
    has_length: bool = False
    """Whether the second name is that of a length."""


@lru_cache(maxsize=4096)
def time_name(name: str, own: tuple[str, ...] = ()) -> TimeName | None:
    """What a name says of times; None where it says nothing.

    Args:
        own: names that may stand in front: those of modalities, and of the column that holds the medium.
    """
    if len(name) > _LONGEST:
        return None
    plain = _plain(name)
    before = next((one for one in map(_plain, own) if one and plain.startswith(one) and plain != one), "")
    rest = plain[len(before) :]
    if (short := _SHORT.get(rest)) is not None:
        return TimeName(short[1], before + short[0])
    if (before or rest not in _PAIRED) and (found := _EDGE.fullmatch(rest)) is not None:
        return TimeName("start" if found[2] else "end", f"{before} {found[1]} {found[4]}")
    if _LENGTH.fullmatch(rest):
        return TimeName("length", before)
    if _FROM.fullmatch(rest) and rest != "offset":  # which is a role
        return TimeName("from", before)
    if _LONG.fullmatch(rest):
        return TimeName("long", before)
    return TimeName("stretch", rest) if _STRETCH.fullmatch(rest) else None


def states_length(name: str) -> bool:
    """Whether a name is that of a length in seconds."""
    of = time_name(name)
    return of is not None and of.side == "length" and not _unit(name)


@lru_cache(maxsize=4096)
def may_be_of_pair(name: str) -> bool:
    """Whether a name says something of times only beside another, with numbers of times, or in several rows, or that
    these are a box."""
    return len(name) <= _LONGEST and any(_plain(name) in names for names in (_PAIRED, _OTHER_SIDES, _SEVERAL))


def _plain(name: str) -> str:
    return re.sub(r"[\s_.()\[\]-]", "", name).lower()


def stretches(said: Mapping[str, Any], taken: Collection[str], own: tuple[str, ...] = ()) -> Iterator[Stretch]:
    """The times of a row or an object.

    Args:
        taken: names that mean something else.
        own: as of ``time_name``.
    """
    starts: dict[str, list[str]] = {}
    ends: dict[str, list[str]] = {}
    lengths: list[str] = []
    more: dict[str, list[str]] = {"from": [], "long": []}
    for name in said:
        if name in taken or (of := time_name(name, own)) is None:
            continue
        if of.side == "stretch":
            yield from _in_one(name, said[name])
        elif of.side in more:
            more[of.side].append(name)
        elif of.side == "length":
            lengths.append(name)
        else:
            (starts if of.side == "start" else ends).setdefault(of.beside, []).append(name)
    for beside, names in starts.items():
        for start in names:
            for end in ends.get(beside, ()):
                if (found := _of_two((start, end), said[start], said[end])) is not None:
                    yield found
    if not ends:
        begins = [name for names in starts.values() for name in names]
        yield from _with_lengths(said, begins, lengths)
        if not is_drawn_before():
            yield from _of_one_unit(said, [*begins, *more["from"]], [*lengths, *more["long"]])
            yield from _to_offsets(said, begins, more["from"])
    yield from (found for found in pairs(said, taken) if is_surely_time(found))


def pairs(said: Mapping[str, Any], taken: Collection[str]) -> Iterator[Stretch]:
    """What may be times under names that say little, as of ``stretches``: numbers of which the second is larger."""
    named = {_plain(name): name for name in said if name not in taken and may_be_of_pair(name)}
    for start, end in _PAIRS.items() if len(named) > 1 else ():
        if start not in named or end not in named or (start in _EDGES_OF_BOXES and _has_other_sides(said)):
            continue
        found = _of_two((named[start], named[end]), said[named[start]], said[named[end]])
        if found is not None and not found.coded and 0 <= found.times[0] < found.times[1] < _A_DATE:
            yield found


def several(said: Mapping[str, Any], taken: Collection[str]) -> Iterator[Stretch]:
    """Two times in a list under a name of several, which may be of anything that happens then."""
    for name in said:
        if len(name) <= _LONGEST and _plain(name) in _SEVERAL and name not in taken:
            yield from _in_one(name, said[name])


def _has_other_sides(said: Mapping[str, Any]) -> bool:
    return any(_plain(name) in _OTHER_SIDES for name in said if len(name) <= _LONGEST)


def is_surely_time(found: Stretch) -> bool:
    """Whether a pair is one of times, and not, such as ids, of anything."""
    return _plain(found.names[0]) in _EDGES_OF_BOXES


def _in_one(name: str, value: Any) -> Iterator[Stretch]:
    if isinstance(value, str) and (both := _TWO.fullmatch(value.strip())) is not None:
        value = both.groups()
    found = _of_two((name,), *value) if isinstance(value, list | tuple) and len(value) == 2 else None
    if found is not None and found.times[0] < found.times[1]:  # else they are two of something else
        yield found


def _with_lengths(said: Mapping[str, Any], starts: Sequence[str], lengths: Sequence[str]) -> Iterator[Stretch]:
    """Starts that are no beginning, with a length: who means the whole has none. Clock times, dates and counts of
    frames beside a length say when a file was made, or cut."""
    for start in starts:
        for length in lengths:
            found = _of_two((start, length), said[start], said[length])
            if found is not None and found.plain and 0 < found.times[0] < _A_DATE and found.times[1] > 0:
                begin, lasts = found.times
                yield found._replace(times=(begin, begin + lasts), has_length=True)


def _of_one_unit(said: Mapping[str, Any], starts: Sequence[str], lengths: Sequence[str]) -> Iterator[Stretch]:
    """As ``_with_lengths``, of counts of one thing, such as frames, and under names that say less."""
    for start in starts:
        for length in lengths:
            found = _of_two((start, length), said[start], said[length])
            if found is None or found.coded or _unit(start) != _unit(length) or not found.times[0] > 0:
                continue
            if "time" in _plain(start) and _is_of_clock(found.times[0]):
                continue
            begin, lasts = found.times
            if lasts > 0 and begin < (_A_DATE if found.plain else _A_DATE_COUNTED):
                yield found._replace(times=(begin, begin + lasts), has_length=True)


def _to_offsets(said: Mapping[str, Any], starts: Sequence[str], offsets: Sequence[str]) -> Iterator[Stretch]:
    """Starts with the offset at which they end, as DCASE has them, in another unit than seconds."""
    for start in starts:
        for end in offsets:
            found = _of_two((start, end), said[start], said[end])
            if found is not None and _unit(start) == _unit(end) and 0 <= found.times[0] < found.times[1]:
                yield found


def _unit(name: str) -> str:
    """What a name says that is counted; empty of seconds, and of nothing."""
    plain = _plain(name)
    return next((unit for unit, words in _UNITS.items() if words.search(plain)), "")


def _of_two(names: tuple[str, ...], start: Any, end: Any) -> Stretch | None:
    coded = None in (seconds(start), seconds(end))
    first, last = (timecode(start), timecode(end)) if coded else (seconds(start), seconds(end))
    if first is None or last is None:
        return None
    return Stretch(names, (first, last), not (coded or any(map(_is_counted, names))), coded)


def _is_counted(name: str) -> bool:
    """Whether a name says, or may mean, other counts than seconds: Whisper's ``seek`` counts stretches of 10 ms."""
    if is_drawn_before():  # as it was told, ``from_s`` among them
        return re.search(_COUNTED, _plain(name)) is not None
    return bool(_unit(name)) or "seek" in _plain(name)


def _is_of_clock(number: float) -> bool:
    """Whether a number may be a time of day (``93000``), and would be hours of a medium in seconds."""
    hours, minutes, seconds = int(number) // 10_000, int(number) // 100 % 100, number % 100
    return number == int(number) and 1 <= hours < 24 and minutes < 60 and seconds < 60


def seconds(value: Any) -> float | None:
    """A number, or a text that spells one, as rows of CSV have it; None of anything else, NaN among it."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def timecode(value: Any) -> float | None:
    """The seconds of a text such as ``00:01:02.5``, or of a number; None of anything else."""
    found = _TIMECODE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return seconds(value)
    return 3600 * int(found[1] or 0) + 60 * int(found[2]) + float(found[3].replace(",", "."))


def as_seconds(*values: Any) -> str:
    """The end of a message on values that should be seconds and are timecodes; empty where they are not."""
    if not any(isinstance(value, str) and ":" in value for value in values) or None in map(timecode, values):
        return ""
    return f"; in seconds that is {' and '.join(f'{timecode(value):g}' for value in values)}"
