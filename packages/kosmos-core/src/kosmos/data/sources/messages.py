"""Chats in the form of the OpenAI API: roles become marks, the loss looks at the assistant's turns alone.

Read too is what other trainers write: ShareGPT's ``from`` and ``value`` in place of ``role`` and ``content``, and
``<image>`` in a text for the next medium of the row's own column (ms-swift, LLaMA-Factory, LLaVA), a ``system`` text
beside the chat, and turns of the assistant that are not to be learned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kosmos.data.document import Mark, Segment, Text
from kosmos.data.marks import ASSISTANT, END, SYSTEM, USER
from kosmos.data.sources.chat_turns import (
    ROLE_MARKS,
    Parts,
    Turn,
    check_all_said,
    is_learned,
    parts_of,
    read_turn,
    turns_of,
)
from kosmos.data.sources.columns import checked_text
from kosmos.data.sources.media import KEYS, MediaRoot, holds_medium, read_media
from kosmos.data.sources.pages import refuse_choice
from kosmos.data.sources.row_media import RowMedia
from kosmos.data.sources.since import is_read_before
from kosmos.data.sources.times import edges_of
from kosmos.data.sources.tools import told
from kosmos.data.sources.turn_media import media_keys, modalities_in, with_media
from kosmos.data.sources.written_media import as_written, whole
from kosmos.errors import SampleError

OBJECTS = "objects"
"""Column of ms-swift's rows with the names and places of things in a picture."""
_OBJECT = re.compile("<(?:ref-object|bbox)>")
"""What stands for the next of them in a text. What ms-swift writes in its place hangs on the model that it trains: the
marks around it, and whether places are in pixels or in thousandths of the picture, of which only the row's author can
know which are meant."""

EDGES = ("start", "end", "begin")
"""Keys of a part have them where others say what ``clip`` does: left out, the whole would stand for a piece of it."""


def needs(turns: Any, name: str, modalities: tuple[str, ...] = ()) -> frozenset[str]:
    """Modalities of the parts of a chat, and of the media that its turns name beside their content.

    Args:
        name: what errors call the chat.
        modalities: that are installed.

    Raises:
        SampleError: the chat is malformed.
    """
    found: set[str] = set()
    keys = media_keys(modalities).keys()
    for one in turns_of(turns, name):
        if not keys.isdisjoint(one[1]) and not is_read_before():
            found.update(modalities_in(one[1], modalities))
        if not isinstance(one[1].get(one[2][1]), str):
            for where, turn, (_, content) in told([one]):
                check_all_said(turn, where)
                found.update(kind for kind, _ in parts_of(turn, content, where))
    return frozenset(found - {"text"})


def read(
    turns: Any,
    name: str,
    own: RowMedia,
    root: MediaRoot,
    *,
    system: Any = None,
    tools: str = "",
    objects: bool = False,
    asked: bool = False,
    last_alone: bool = False,
) -> Iterator[Segment]:
    """Segments of a chat: the role's mark, the content, ``<|end|>`` for each turn.

    A part that only says ``{"type": "image"}`` takes the row's next image, and so does ``<image>`` in a text. Where no
    medium of the row has a place, all stand in front of what the user says first. Media that a turn names beside its
    content are parts of it (``turn_media``).

    Args:
        name: what errors call the chat.
        own: the media beside the chat; all of them have to be taken.
        system: text of the system's turn, where the chat has none of its own.
        tools: text that offers some, at the end of the system's turn.
        objects: whether the row has a column ``OBJECTS``, for which texts may have places.
        asked: whether the assistant may have said nothing yet.
        last_alone: whether of several turns of the assistant the last alone is learned.

    Raises:
        SampleError: the chat is malformed, an answer in it is empty or there is none, a medium of the row has no place,
            or an object has one.
    """
    answers, silent = 0, ""
    spoken = told([with_media(turn, own, root) for turn in turns_of(turns, name)])
    own.adopt(turn.get(content) for _, turn, (_, content) in spoken)
    chat = [(*read_turn(turn, keys, where), turn, f"{where}.{keys[1]}", where) for where, turn, keys in spoken]
    leading = own.leading((role, parts) for role, parts, *_ in chat)
    last = max((place for place, turn in enumerate(chat) if turn[0] == ASSISTANT), default=-1) if last_alone else -1
    yield from _system(system, tools, spoken)
    offering = 0 if tools and _begins_with_system(spoken) else -1
    for place, (role, parts, turn, content, where) in enumerate(chat):
        train = role == ASSISTANT and is_learned(turn, where) and (not last_alone or place == last)
        if train:
            is_said = any(_is_said(kind, part, own, root) for kind, part in parts)
            answers += is_said
            if not is_said and all(kind == "text" for kind, _ in parts):
                silent = silent or content
        yield Mark(role)
        if role == USER:
            parts, leading = [*((modality, {"type": modality}) for modality in leading), *parts], []
        if objects:
            _check_no_object(parts, where)
        said: Iterable[Segment] = (s for kind, part in parts for s in _segments(kind, part, own, root, where, train))
        said = as_written(said, root.taken, train=train) if role == ASSISTANT else said
        yield from _with_tools(list(said), tools) if place == offering else said
        yield Mark(END, train=train)
    if silent and not asked:  # its end alone would be learned: to answer with nothing
        otherwise = '"loss": false into the turn' if answers else "leave the row out"
        raise SampleError(f"{silent}: the answer is empty; write it, or {otherwise}")
    if not answers and not asked:
        raise SampleError(f"{name}: no turn of the assistant with text to learn from")
    own.check_all_taken()


def _system(text: Any, tools: str, turns: Sequence[Turn]) -> Iterator[Segment]:
    """The system's turn of a chat that has none itself: a text beside it, and the tools that are offered.

    Raises:
        SampleError: there is such a text, and the chat has a turn of the system.
    """
    said = "" if text in (None, "") else checked_text(text, "system")
    if _begins_with_system(turns):
        if said:
            raise SampleError("the row has a system text and the chat a turn of the system; keep one")
        return
    if said or tools:
        yield Mark(SYSTEM)
        yield Text("\n\n".join(part for part in (said, tools) if part))
        yield Mark(END)


def _begins_with_system(turns: Sequence[Turn]) -> bool:
    _, first, (role, _) = turns[0]
    return ROLE_MARKS.get(str(first.get(role))) == SYSTEM


def _with_tools(said: list[Segment], tools: str) -> list[Segment]:
    """What the system says, and behind it the tools that are offered: one text, as published models have learned it."""
    if said and isinstance(last := said[-1], Text):
        return [*said[:-1], replace(last, text=f"{last.text}\n\n{tools}")]
    return [*said, Text(tools)]


def _check_no_object(parts: Parts, where: str) -> None:
    """Raises SampleError where a text stands open for an object: it would be learned as it is."""
    texts = " ".join(str(part.get("text") or "") for kind, part in parts if kind == "text")
    if (found := _OBJECT.search(texts)) is not None:
        raise SampleError(
            f"{where}: {found[0]} stands for something in {OBJECTS}, which is not read; write its name or place into "
            "the text, as the model is to say it"
        )


def _segments(
    kind: str, part: Mapping[str, Any], own: RowMedia, root: MediaRoot, where: str, train: bool
) -> Iterator[Segment]:
    if kind != "text":
        _check_part_said(kind, part, where, has_time=kind in own.times.timed)
        medium, clip = _medium(kind, part, own, where)
        media = read_media(kind, medium, root, clip, has_time=kind in own.times.timed)
        yield from whole(media, kind, root.taken) if train else media
        return
    for piece_kind, piece in own.split(checked_text(part.get("text"), f"{where}.text")):
        if piece_kind != "text":
            yield from _segments(piece_kind, piece, own, root, where, train)
        elif piece["text"]:
            yield Text(piece["text"], train=train)


def _is_said(kind: str, part: Mapping[str, Any], own: RowMedia, root: MediaRoot) -> bool:
    """Whether a part says something that can be learned: a text, or a medium that the run has a codec for."""
    if kind != "text":
        return kind in root.taken.written
    return own.is_said(str(part.get("text") or ""), root.taken.written)


def _check_part_said(kind: str, part: Mapping[str, Any], where: str, *, has_time: bool) -> None:
    """Raises SampleError where a part of a medium says what is not read of it."""
    read = edges_of(kind) if has_time else ()
    for key in (key for edge in EDGES for key in (f"{kind}_{edge}", edge, f"{edge}_time") if key not in read):
        if part.get(key):  # from 0 on is from the beginning
            raise SampleError(
                f"{where}: {key} of the {part['type']} part is not read; write clip: [start, end] in seconds"
            )
    try:
        refuse_choice(part, (*KEYS, part["type"], kind, f"{kind}_url"), has_time=has_time)
    except SampleError as error:
        raise SampleError(f"{where}: {part['type']} part: {error}") from error
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
