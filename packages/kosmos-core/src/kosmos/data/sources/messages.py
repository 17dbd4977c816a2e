"""Chats in the form of the OpenAI API: roles become marks, the loss looks at the assistant's turns alone.

Read too is what other trainers write: ShareGPT's ``from`` and ``value`` in place of ``role`` and ``content``, and
``<image>`` in a text for the next medium of the row's own column (ms-swift, LLaMA-Factory, LLaVA), a ``system`` text
beside the chat, and turns of the assistant that are not to be learned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kosmos.data.document import Mark, Segment, Text
from kosmos.data.marks import ASSISTANT, END, SYSTEM, USER
from kosmos.data.sources.columns import checked_text, did_you_mean, kind_of
from kosmos.data.sources.media import holds_medium, read_media
from kosmos.data.sources.times import RowTimes, edges_of
from kosmos.data.sources.well_known import FOR_OTHERS, WELL_KNOWN
from kosmos.errors import SampleError

ROLE_MARKS = {
    "system": SYSTEM,
    "developer": SYSTEM,
    "user": USER,
    "human": USER,
    "assistant": ASSISTANT,
    "gpt": ASSISTANT,
}
Keys = tuple[str, str]
"""Those of a turn that hold its role and its content."""
Parts = list[tuple[str, Mapping[str, Any]]]
"""Those of a turn, with their kinds."""
OPENAI: Keys = ("role", "content")
SHAREGPT: Keys = ("from", "value")
_CALLS = "calls of tools", "the content as text"
_THOUGHTS = "thoughts beside the content", "it as text, or leave them out"
_OFFERED = "tools that are offered", "the text of the system, or leave them out"
OFFERED = ("tools", "functions")
"""Roles and keys under which tools are offered: left out, the model would learn to know of none, or to make them up."""
BESIDE_CONTENT = {
    "tool_calls": _CALLS,  # left out, the turn would teach to say nothing
    "function_call": _CALLS,
    "function_calls": _CALLS,
    **dict.fromkeys(OFFERED, _OFFERED),
    "reasoning_content": _THOUGHTS,  # left out, it would teach to answer without
    "reasoning": _THOUGHTS,
    "thinking": _THOUGHTS,
}
"""Keys of a turn under which the OpenAI API, and others after it, have what belongs to what is said."""

OBJECTS = "objects"
"""Column of ms-swift's rows with the names and places of things in a picture."""
_OBJECT = re.compile("<(?:ref-object|bbox)>")
"""What stands for the next of them in a text. What ms-swift writes in its place hangs on the model that it trains: the
marks around it, and whether places are in pixels or in thousandths of the picture, of which only the row's author can
know which are meant."""

LEARNED = ("loss", "loss_scale", "weight", "train")
"""Keys by which ms-swift (the first two), the OpenAI API and our own segments say whether a turn is learned."""

_WELL_KNOWN_PLACE = re.compile(f"<(?:{'|'.join(sorted({*WELL_KNOWN.values()}))})>")
"""In what is asked it means a medium, be it one that the row lacks."""

EDGES = ("start", "end", "begin")
"""Keys of a part have them where others say what ``clip`` does: left out, the whole would stand for a piece of it."""


class RowMedia:
    """The media of a row's own columns: each is taken by the next part or placeholder that names its modality."""

    def __init__(self, held: Mapping[str, tuple[str, Any]], times: RowTimes) -> None:
        """
        Args:
            held: modality to the column that holds its media, and what stands there. A text may say ``<image>`` for
                these modalities alone: in a chat about HTML it is what it is.
            times: which stretches of media the row means.
        """
        self.times = times
        self._columns = {modality: column for modality, (column, _) in held.items()}
        self._media = {modality: _listed(value) for modality, (_, value) in held.items()}
        self._taken = dict.fromkeys(held, 0)
        self._meant: dict[str, str] = {}
        """Name in a placeholder to the modality that is meant, where it is another."""
        self._placeholder = _placeholder_of(held) if held else None

    def split(self, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """A text as parts with their kinds: what stands between placeholders, and a part for each of them."""
        pieces = self._placeholder.split(text) if self._placeholder is not None else [text]
        for number, piece in enumerate(pieces):
            kind = self._meant.get(piece, piece) if number % 2 else "text"
            yield kind, {"type": kind} if number % 2 else {"text": piece}

    def is_said(self, text: str) -> bool:
        """Whether a text says anything beside the places of media."""
        return any(kind == "text" and piece["text"].strip() for kind, piece in self.split(text))

    def adopt(self, contents: Iterable[Any]) -> None:
        """Let ``<image>`` stand for the media of the row where it holds those of one other modality alone, as many as
        there are of it in all texts of the chat, and none of these has a place for them.

        Args:
            contents: of the turns. Where one is no text, its parts are the places.
        """
        if len(self._media) != 1 or FOR_OTHERS in self._media or self._placeholder is None:
            return
        [(modality, media)], texts = self._media.items(), list(contents)
        if not media or not all(isinstance(text, str) for text in texts) or any(map(self._placeholder.search, texts)):
            return
        if sum(text.count(f"<{FOR_OTHERS}>") for text in texts) == len(media):
            self._placeholder, self._meant = _placeholder_of([FOR_OTHERS]), {FOR_OTHERS: modality}

    def leading(self, chat: Iterable[tuple[str, Parts]]) -> list[str]:
        """Modalities of all media, in order, where nothing in a chat is the place of any: they begin what is asked.

        Args:
            chat: role and parts of each turn.
        """
        media, place = [modality for modality, found in self._media.items() for _ in found], self._placeholder
        if not media or place is None:
            return []
        for role, parts in chat:
            for kind, part in parts:
                text = str(part.get("text"))
                if kind != "text" or place.search(text) or (role == USER and _WELL_KNOWN_PLACE.search(text)):
                    return []
        return media

    def take(self, modality: str, what: str) -> Any:
        """The next medium. Raises SampleError, which says ``what`` asked, where there is none."""
        media, taken = self._media.get(modality, []), self._taken.get(modality, 0)
        if taken == len(media):
            column = self._columns.get(modality, f"{modality}s")
            if not taken:
                raise SampleError(f"{what} holds no medium, and the row has none in {column}")
            raise SampleError(
                f"{what} is place {taken + 1} for {modality}, and {column} holds {count_of(media)}; take it out, or "
                "add its medium"
            )
        self._taken[modality] = taken + 1
        return media[taken]

    def check_all_taken(self) -> None:
        """Raises SampleError where a medium is left: a model that never sees it would learn to answer without."""
        for modality, media in self._media.items():
            if (taken := self._taken[modality]) < len(media):
                raise SampleError(
                    f"{self._columns[modality]} holds {count_of(media)}, {taken} placed; "
                    f'put <{modality}> or {{"type": "{modality}"}} where each belongs'
                )


def count_of(media: Sequence[Any]) -> str:
    return "1 medium" if len(media) == 1 else f"{len(media)} media"


def _placeholder_of(names: Iterable[str]) -> re.Pattern[str]:
    """A line of its own is how it is written, so one line end beside it is no part of the text."""
    return re.compile(rf"(?:(?<!\s)\n)?<({'|'.join(map(re.escape, names))})>(?:\n(?!\s))?")


def _listed(value: Any) -> list[Any]:
    return [item for item in (value if isinstance(value, list | tuple) else [value]) if holds_medium(item)]


def part_kind(part: Any, where: str) -> str:
    """``text`` or the modality of a part: its type without ``input_``, ``output_`` and ``_url``.

    Raises:
        SampleError: no object with a type.
    """
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise SampleError(f"{where}: expected an object with a type, got {kind_of(part)}")
    kind: str = part["type"]
    return kind.removeprefix("input_").removeprefix("output_").removesuffix("_url")


def _parts(turn: Mapping[str, Any], key: str, where: str) -> Parts:
    """The parts of one turn. ``key`` is that of its content."""
    content = turn.get(key)
    if isinstance(content, str):
        return [("text", {"text": content})]
    if not isinstance(content, list | tuple):
        _check_there(turn, key, where)
        raise SampleError(f"{where}.{key}: expected text or a list of parts, got {kind_of(content)}")
    return [(part_kind(part, f"{where}.{key}[{n}]"), part) for n, part in enumerate(content)]


def _turn(turn: Mapping[str, Any], keys: Keys, where: str) -> tuple[str, Parts]:
    """The mark of a turn's role, and its parts. Raises SampleError where it is malformed, or says something beside."""
    _check_all_said(turn, where)
    return _role(turn, keys[0], where), _parts(turn, keys[1], where)


def _role(turn: Mapping[str, Any], key: str, where: str) -> str:
    """The mark of a turn's role, which stands under ``key``."""
    role = turn.get(key)
    if not isinstance(role, str) or role not in ROLE_MARKS:
        _check_there(turn, key, where)
        raise SampleError(f"{where}.{key}: unknown role {role!r:.40}{did_you_mean(str(role), ROLE_MARKS)}")
    return ROLE_MARKS[role]


def _check_there(turn: Mapping[str, Any], key: str, where: str) -> None:
    """Raises SampleError where a turn has no such key, as where it is mistyped."""
    if key not in turn:
        raise SampleError(f"{where}: no {key!r}{did_you_mean(key, turn)}")


def _turns(turns: Any, name: str) -> Iterator[tuple[str, Mapping[str, Any], Keys]]:
    """Each turn with its place and the keys that its role and its content are, or should be, under."""
    if not isinstance(turns, list | tuple) or not turns:
        raise SampleError(f"{name}: expected a list that is not empty, got {kind_of(turns)}")
    for number, turn in enumerate(turns):
        if not isinstance(turn, dict | Mapping):  # to ask a dict whether it is a Mapping takes ten times as long
            raise SampleError(f"{name}[{number}]: expected an object, got {kind_of(turn)}")
        yield f"{name}[{number}]", turn, OPENAI if turn.get("role") is not None else _keys(turn)


def _keys(turn: Mapping[str, Any]) -> Keys:
    """Of a turn without a role by this name. One key of a pair tells which other was meant."""
    if turn.get("from") is not None:  # a table may have all four columns
        return SHAREGPT
    return OPENAI if any(key in turn for key in OPENAI) or not any(key in turn for key in SHAREGPT) else SHAREGPT


def needs(turns: Any, name: str) -> frozenset[str]:
    """Modalities of the parts of a chat.

    Args:
        name: what errors call the chat.

    Raises:
        SampleError: the chat is malformed.
    """
    found: set[str] = set()
    for where, turn, (_, content) in _turns(turns, name):
        if not isinstance(turn.get(content), str):
            _check_all_said(turn, where)
            found.update(kind for kind, _ in _parts(turn, content, where))
    return frozenset(found - {"text"})


def read(
    turns: Any,
    name: str,
    own: RowMedia,
    root: Path,
    *,
    system: Any = None,
    objects: bool = False,
    asked: bool = False,
) -> Iterator[Segment]:
    """Segments of a chat: the role's mark, the content, ``<|end|>`` for each turn.

    A part that only says ``{"type": "image"}`` takes the row's next image, and so does ``<image>`` in a text. Where no
    medium of the row has a place, all stand in front of what the user says first.

    Args:
        name: what errors call the chat.
        own: the media beside the chat; all of them have to be taken.
        system: text of the system's turn, where the chat has none of its own.
        objects: whether the row has a column ``OBJECTS``, for which texts may have places.
        asked: whether the assistant may have said nothing yet.

    Raises:
        SampleError: the chat is malformed, an answer in it is empty or there is none, a medium of the row has no place,
            or an object has one.
    """
    answers, silent = 0, ""
    own.adopt(turn.get(content) for _, turn, (_, content) in _turns(turns, name))
    chat = [(*_turn(turn, keys, where), turn, f"{where}.{keys[1]}", where) for where, turn, keys in _turns(turns, name)]
    leading = own.leading((role, parts) for role, parts, *_ in chat)
    yield from _system(system, turns)
    for role, parts, turn, content, where in chat:
        train = role == ASSISTANT and _is_learned(turn, where)
        if train:
            said = any(kind == "text" and own.is_said(str(part.get("text") or "")) for kind, part in parts)
            answers += said
            if not said and all(kind == "text" for kind, _ in parts):
                silent = silent or content
        yield Mark(role)
        if role == USER:
            parts, leading = [*((modality, {"type": modality}) for modality in leading), *parts], []
        for kind, part in parts:
            if objects and kind == "text":
                _check_no_object(part, where)
            yield from _segments(kind, part, own, root, where, train)
        yield Mark(END, train=train)
    if not answers and not asked:
        raise SampleError(f"{name}: no turn of the assistant with text to learn from")
    if silent and not asked:  # its end alone would be learned: to answer with nothing
        raise SampleError(f'{silent}: the answer is empty; write it, or "loss": false into the turn')
    own.check_all_taken()


def _system(text: Any, turns: Any) -> Iterator[Segment]:
    """The turn of a text beside the chat. Raises SampleError where the chat has one itself."""
    if text in (None, ""):
        return
    first = turns[0] if isinstance(turns, list | tuple) and turns and isinstance(turns[0], Mapping) else {}
    if ROLE_MARKS.get(str(first.get("role") or first.get("from"))) == SYSTEM:
        raise SampleError("the row has a system text and the chat a turn of the system; keep one")
    yield Mark(SYSTEM)
    yield Text(checked_text(text, "system"))
    yield Mark(END)


def _check_all_said(turn: Mapping[str, Any], where: str) -> None:
    """Raises SampleError where a turn says something beside its content."""
    for key in BESIDE_CONTENT:
        if (said := turn.get(key)) is not None and is_something(said):
            raise SampleError(_not_read(f"{where}.{key}", key))


def check_none_offered(tools: Any, name: str) -> None:
    """Raises SampleError where a row offers tools beside its chat."""
    if tools is not None and is_something(tools):
        raise SampleError(_not_read(name, "tools"))


def _not_read(where: str, key: str) -> str:
    what, advice = BESIDE_CONTENT[key]
    return f"{where}: {what} are not read; write them into {advice}"


def _check_no_object(part: Mapping[str, Any], where: str) -> None:
    """Raises SampleError where a text stands open for an object: it would be learned as it is."""
    if (found := _OBJECT.search(str(part.get("text") or ""))) is not None:
        raise SampleError(
            f"{where}: {found[0]} stands for something in {OBJECTS}, which is not read; write its name or place into "
            "the text, as the model is to say it"
        )


def is_something(value: Any) -> bool:
    """Whether a value says anything. Nothing is null, what is empty, that as JSON, and lists and objects of nothing."""
    if isinstance(value, str):
        return value.strip() not in ("", "null", "[]", "{}")
    if isinstance(value, Mapping):
        return any(map(is_something, value.values()))
    return any(map(is_something, value)) if isinstance(value, list | tuple) else bool(value)


def _is_learned(turn: Mapping[str, Any], where: str) -> bool:
    """Whether a turn of the assistant is to be learned: any of ``LEARNED`` may say no.

    Raises:
        SampleError: one of them says something between.
    """
    learned = True
    for key in LEARNED:
        if (said := turn.get(key)) is not None:
            if said not in (0, 1):  # false and true among them
                raise SampleError(f"{where}.{key}: expected 0 or 1, false or true, got {said!r:.40}")
            learned &= bool(said)
    return learned


def _segments(
    kind: str, part: Mapping[str, Any], own: RowMedia, root: Path, where: str, train: bool
) -> Iterator[Segment]:
    if kind != "text":
        _check_part_said(kind, part, where, has_time=kind in own.times.timed)
        medium, clip = _medium(kind, part, own, where)
        yield from read_media(kind, medium, root, clip, has_time=kind in own.times.timed)
        return
    for piece_kind, piece in own.split(checked_text(part.get("text"), f"{where}.text")):
        if piece_kind != "text":
            yield from _segments(piece_kind, piece, own, root, where, train)
        elif piece["text"]:
            yield Text(piece["text"], train=train)


def _check_part_said(kind: str, part: Mapping[str, Any], where: str, *, has_time: bool) -> None:
    """Raises SampleError where a part of a medium says what is not read of it."""
    read = edges_of(kind) if has_time else ()
    for key in (key for edge in EDGES for key in (f"{kind}_{edge}", edge, f"{edge}_time") if key not in read):
        if part.get(key):  # from 0 on is from the beginning
            raise SampleError(
                f"{where}: {key} of the {part['type']} part is not read; write clip: [start, end] in seconds"
            )
    if str(part.get("text") or "").strip():
        raise SampleError(
            f"{where}: text beside the medium of the {part['type']} part is not read; make it a text part"
        )


def _medium(kind: str, part: Mapping[str, Any], own: RowMedia, where: str) -> tuple[Any, Any]:
    """What a part of a medium holds, or the row's next, and its clip."""
    held = next((part[key] for key in (part["type"], kind, f"{kind}_url") if holds_medium(part.get(key))), None)
    if held is None and any(part.get(key) is not None for key in ("bytes", "data", "path", "url")):
        held = part
    medium = own.take(kind, f"{where}: {part['type']} part") if held is None else held
    clip = own.times.beside(kind, part)
    if clip is None and (held is None or kind in own.times.timed):
        clip = own.times.clip(kind, medium)
    return medium, clip
