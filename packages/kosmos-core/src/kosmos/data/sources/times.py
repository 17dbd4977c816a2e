"""Which stretch of a medium a row means: ``clip``, or ``offset`` and ``duration`` in seconds, as NeMo's manifests do,
or ``MODALITY_start`` and ``MODALITY_end`` in seconds, as Qwen-VL's messages do.

Other times (``time_names``) are not read: ``start`` and ``end`` may be seconds or samples, or say from where in a film
a file was cut. Whoever means seconds names their columns. Passed over in silence, the text of a piece would be learned
for the whole.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kosmos.data.sources.columns import Row, look_up, parse_path
from kosmos.data.sources.since import lacks
from kosmos.data.sources.splits import with_meaning
from kosmos.data.sources.time_names import Stretch, as_seconds, may_be_of_pair, seconds, stretches, time_name, timecode
from kosmos.errors import SampleError

ROLES: Final = ("clip", "offset", "duration", "start", "end")
"""Of these ``start`` and ``end`` have a meaning where ``columns`` names one of them."""
OF_A_PART: Final = ("clip", "offset", "duration")
"""Keys that say which stretch of a medium is meant where they stand beside it."""
CLIPS: Final = "clips of objects"
"""Rule (``kosmos.train.order.LATER``): older runs pass over what the object of a medium without time says of seconds,
and what one within another does."""
_WRITE = "write clip: [start, end] in seconds"
_EDGES = ("_start", "_end")
"""Behind the name of a modality, of which they are the seconds."""

Clip = tuple[float, float]


def read_clip(value: Any) -> Clip | None:
    """Start and end in seconds from ``[start, end]``.

    Raises:
        SampleError: not two numbers with 0 <= start < end.
    """
    if value is None:
        return None
    numbers = isinstance(value, list | tuple) and len(value) == 2
    if not numbers or any(isinstance(v, bool) or not isinstance(v, int | float) for v in value):
        raise SampleError(f"clip: expected [start, end] in seconds, got {value!r:.80}{_clip_meant(value)}")
    start, end = float(value[0]), float(value[1])
    if not (math.isfinite(start) and math.isfinite(end) and 0 <= start < end):
        raise SampleError(f"clip: expected 0 <= start < end, got [{start}, {end}]")
    return start, end


def _clip_meant(value: Any) -> str:
    """How to write what stands in the place of a clip; empty where nobody knows."""
    if not isinstance(value, list | tuple) or not value:
        return ""
    if all(isinstance(one, list | tuple) for one in value):
        return '; it is that of all media of the row: write each as {"path": FILE, "clip": [start, end]}'
    times = list(map(timecode, value))
    return f"; write [{', '.join(f'{one:g}' for one in times)}]" if len(times) == 2 and None not in times else ""


def clip_beside(modality: str, medium: Mapping[str, Any]) -> Any:
    """What an object says of the medium that it holds, for ``read_clip``; None where it says nothing.

    Raises:
        SampleError: times that are not read.
    """
    if (clip := medium.get("clip")) is not None:
        return clip
    if (clip := _from_edges(modality, medium, ())) is not None or not _may_say(medium, (modality,)):
        return clip
    clip = _from_offset(medium.get("offset"), medium.get("duration"))
    if clip is None and (said := _unread(medium, (), (modality,))):
        raise SampleError(f"{said.what}; {said.write}")
    return clip


def said_beside(modality: str, medium: Mapping[str, Any], *, has_time: bool) -> Any:
    """As ``clip_beside``; of a medium without time what says seconds beyond doubt, which its processor refuses."""
    if has_time:
        return clip_beside(modality, medium)
    if (clip := medium.get("clip")) is not None:
        return clip
    edges = [seconds(medium.get(name)) for name in edges_of(modality)]
    return _from_offset(medium.get("offset"), medium.get("duration")) if None in edges else edges


def own_clip(modality: str, item: Any, held: Any, *, has_time: bool) -> Clip | None:
    """What an object says of the stretch that is meant of the medium in it.

    Args:
        held: what in it holds the medium: an object within it, or itself.

    Raises:
        SampleError: as of ``read_clip`` and ``clip_beside``.
    """
    if not isinstance(item, Mapping):
        return None
    if lacks(CLIPS):
        return read_clip(clip_beside(modality, item)) if has_time else None
    own = read_clip(said_beside(modality, item, has_time=has_time))
    if own is not None or held is item or not isinstance(held, Mapping):
        return own
    return read_clip(said_beside(modality, held, has_time=has_time))


def edges_of(name: str) -> tuple[str, str]:
    """Columns and keys of the seconds at which the clip of a medium starts and ends.

    Args:
        name: of its modality, or of the column that holds it.
    """
    start, end = _EDGES
    return f"{name}{start}", f"{name}{end}"


def columns_of(timed: Collection[str], named: Collection[str], columns: Collection[str]) -> set[str]:
    """Columns of a table that may say which stretch of media is meant.

    Args:
        timed: modalities of which there may be media that have time.
        named: the columns that hold them, where they are named otherwise.
    """
    own = (*timed, *named)
    edges = {edge for name in own for edge in edges_of(name)}
    found = {column for column in columns if column in edges or _may_be_time(column, own)} if timed else set()
    of = {column: name.side for column in found if (name := time_name(column, own)) is not None}
    # Beside no start a count of frames is none of them, and may be a wish.
    return found if {"start", "from"} & {*of.values()} else {column for column in found if of.get(column) != "long"}


def is_beside(key: str, part: Collection[str]) -> bool:
    """Whether a key of an object says which stretch of the medium beside it is meant."""
    return key in OF_A_PART or (key.endswith(_EDGES) and key.rpartition("_")[0] in part)


@dataclass(frozen=True)
class RowTimes:
    """The stretches of its media that a row means."""

    row: Row
    columns: Mapping[str, str]
    """Role to the column that holds it, where that is named."""
    timed: Collection[str]
    """Modalities whose media have time. The times of a row, but for its ``clip``, are of these alone."""
    taken: Collection[str] = ()
    """Columns that mean something else."""

    def beside(self, modality: str, part: Mapping[str, Any]) -> Any:
        """As ``clip_beside``, of a part of the row that holds a medium or stands for one."""
        has_time = modality in self.timed
        return part.get("clip") if not has_time and lacks(CLIPS) else said_beside(modality, part, has_time=has_time)

    def clip(self, modality: str, media: Any, column: str = "") -> Any:
        """What the row says of ``media``, the value of one of its columns or parts, for ``read_clip``.

        Args:
            column: that holds them, where it is not that of their modality.

        Raises:
            SampleError: times that are not read, or do not belong together.
        """
        column = column or self.columns.get(modality, "")
        edges = self._edges(modality, column) if modality in self.timed else None
        if edges is None and not self.columns and not _may_say(self.row, (modality, column)):  # as of most rows
            return None
        clip = self._value("clip")
        if clip is not None or modality not in self.timed or "clip" in self.columns:
            return clip
        if "start" in self.columns or "end" in self.columns:
            return self._between(self._value("start"), self._value("end"))
        if edges is not None:
            return edges
        clip = _from_offset(self._value("offset"), self._value("duration"))
        # A sound whose bytes stand in the row is a piece already, and its times say of what.
        if clip is None and _names_file(media) and (said := _unread(self.row, self._taken(), (modality, column))):
            raise SampleError(f"{said.what}; {said.write}{said.name}; leave {said.them} out if the whole is meant")
        return clip

    def _edges(self, modality: str, column: str) -> Clip | None:
        taken = self._taken() if self.columns or self.taken else ()
        edges = _from_edges(modality, self.row, taken)
        return _from_edges(column, self.row, taken) if edges is None and column not in ("", modality) else edges

    def _value(self, role: str) -> Any:
        if role in self.columns:
            return look_up(self.row, self.columns[role])
        return None if role in self._taken() else self.row.get(role)

    def _taken(self) -> set[str]:
        """Columns that mean something else, with those that they are in."""
        paths = {*self.taken, *with_meaning(self.columns).values()}
        return paths | {str(parse_path(path)[0]) for path in paths}

    def _between(self, start: Any, end: Any) -> Clip | None:
        """The clip of two columns. Raises SampleError where they hold something and not both a number."""
        if _is_nothing(start) and _is_nothing(end):
            return None
        numbers = seconds(start), seconds(end)
        if numbers[0] is None or numbers[1] is None:
            if "end" not in self.columns and "duration" in self.columns:
                begin, length = (self.columns[role] for role in ("start", "duration"))
                raise SampleError(
                    f"{begin}: a start goes with an end; with a length it is an offset: name the columns "
                    f"{{offset: {begin}, duration: {length}}}"
                )
            names = " and ".join(self.columns.get(role, role) for role in ("start", "end"))
            spelled = as_seconds(start, end)
            raise SampleError(f"{names}: expected seconds, got {start!r:.40} and {end!r:.40}{spelled}")
        return read_clip(numbers)


def _from_offset(offset: Any, duration: Any) -> Clip | None:
    """The clip of NeMo's two keys. ``duration`` alone is the length of the file, which NeMo's manifests always have."""
    begin, length = seconds(offset), seconds(duration)
    if begin is None or length is None:
        return None
    if begin < 0 or length <= 0:
        raise SampleError(f"offset {begin:g}, duration {length:g}: expected seconds from 0 on, and more than 0 of them")
    return begin, begin + length


def _from_edges(name: str, said: Mapping[str, Any], taken: Collection[str]) -> Clip | None:
    """The clip by ``edges_of``; without a start it begins with the medium.

    Raises:
        SampleError: a start alone, as nothing here knows where the medium ends, or no seconds.
    """
    names = edges_of(name)
    if names[0] not in said and names[1] not in said:  # as of most
        return None
    start, end = (None if name in taken or _is_nothing(said.get(name)) else said[name] for name in names)
    if end is None and (start is None or seconds(start) == 0):  # from 0 on is from the beginning
        return None
    if end is None:
        raise SampleError(f"{names[0]} without {names[1]} is not read; {_WRITE}")
    if start is None and (other := _other_start(name, said, {*taken, names[0]})) is not None:
        raise SampleError(f"{other} and {names[1]} are not read together; call it {names[0]}, or {_WRITE}")
    begin, until = seconds(0 if start is None else start), seconds(end)
    if begin is None or until is None or not 0 <= begin < until:
        raise SampleError(
            f"{names[0]} and {names[1]}: expected seconds, 0 <= start < end, got {start!r:.40} and {end!r:.40}"
            f"{as_seconds(0 if start is None else start, end)}"
        )
    return begin, until


def _other_start(name: str, said: Mapping[str, Any], taken: Collection[str]) -> str | None:
    """What says where a medium begins, under a name by which nothing is read."""
    for key, value in said.items():
        of = None if key in taken or _is_nothing(value) or seconds(value) == 0 else time_name(key, (name,))
        if of is not None and of.side == "start" and key.lower().startswith(name.lower()):
            return key
    return None


class _Unread(NamedTuple):
    """Why the times of a row or an object cannot be used, and how they can."""

    what: str
    write: str
    name: str
    """Which ``columns`` would have them read; empty where none would."""
    them: str = "them"


def _unread(said: Mapping[str, Any], taken: Collection[str], own: tuple[str, ...]) -> _Unread | None:
    """What is said and not read; None where nothing is."""
    if "offset" not in taken and (end := seconds(said.get("offset"))):  # from 0 on is from the beginning
        if (start := _start_before(end, said, taken, own)) is not None:
            named = _name(f"{{start: {start}, end: offset}}")
            return _Unread(f"{start} and offset beside a medium are not read", _WRITE, named)
        return _Unread("offset without a duration is not read", _WRITE, _name("{offset: offset, duration: COLUMN}"))
    if "offset" not in taken and seconds(said.get("offset")) is None and (begin := timecode(said.get("offset"))):
        return _Unread(f"offset: expected seconds, got {said['offset']!r:.40}", f"write {begin:g}", "", "it")
    return next((_unread_stretch(found) for found in stretches(said, taken, own)), None)


def _start_before(end: float, said: Mapping[str, Any], taken: Collection[str], own: tuple[str, ...]) -> str | None:
    """What says from where a piece is that ends at an offset, as DCASE has it."""
    names = (name for name in said if name not in taken and name != "offset")
    starts = (name for name in names if (of := time_name(name, own)) is not None and of.side == "start")
    return next((name for name in starts if (at := seconds(said[name])) is not None and 0 <= at < end), None)


def _unread_stretch(found: Stretch) -> _Unread:
    start, end = found.times
    write = _WRITE if found.plain or not found.coded else f"write clip: [{start:g}, {end:g}] in seconds"
    if len(found.names) == 1:
        [name] = found.names
        named = f", or name it, of seconds (columns: {{clip: {name}}})" if found.plain else ""
        return _Unread(f"{name} beside a medium is not read", write, named, "it")
    roles = "{{offset: {}, duration: {}}}" if found.has_length else "{{start: {}, end: {}}}"
    named = _name(roles.format(*found.names)) if found.plain else ""
    return _Unread(f"{' and '.join(found.names)} beside a medium are not read", write, named)


def _name(columns: str) -> str:
    return f", or name the columns of seconds (columns: {columns})"


def _may_say(said: Mapping[str, Any], own: tuple[str, ...]) -> bool:
    """Whether a row or an object may say which stretch is meant, by its names."""
    return any(_may_be_time(name, own) for name in said)


def _may_be_time(name: str, own: tuple[str, ...]) -> bool:
    return name in ROLES or time_name(name, own) is not None or may_be_of_pair(name)


def _is_nothing(value: Any) -> bool:
    return value in (None, "") or (isinstance(value, float) and math.isnan(value))


def _names_file(media: Any) -> bool:
    """Whether one of a row's media lies in a file of its own, which may hold more than the piece that the row is of."""
    if isinstance(media, list | tuple):
        return any(map(_names_file, media))
    if isinstance(media, Mapping):
        return all(media.get(key) is None for key in ("bytes", "data", "array"))
    return isinstance(media, str) and media[:5].lower() != "data:"
