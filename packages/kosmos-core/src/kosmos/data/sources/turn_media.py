"""Media that a turn of a chat names beside its content, as Ollama has them: they become parts of the content.

``{"role": "user", "content": "What is this?", "images": ["cat.png"]}``: under the name of the modality or its plural.
They find their places as media beside the chat do (``row_media``), in this turn alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from kosmos.data.marks import USER
from kosmos.data.sources.chat_turns import ROLE_MARKS, Turn, parts_of
from kosmos.data.sources.columns import checked_text
from kosmos.data.sources.media import KEYS, MediaRoot, holds_medium
from kosmos.data.sources.row_media import RowMedia
from kosmos.data.sources.since import is_read_before
from kosmos.data.sources.times import RowTimes
from kosmos.data.sources.well_known import WELL_KNOWN, differ, is_medium
from kosmos.errors import SampleError

Held = dict[str, tuple[str, Any]]
"""Modality to the key of a turn that holds its media, and what stands there."""


@lru_cache(maxsize=64)
def media_keys(modalities: tuple[str, ...]) -> Mapping[str, str]:
    """Keys of a turn that may hold media, with their modalities: those that are installed, and well-known ones that a
    row must not lose in silence. The plural goes first, and last what parts of OpenAI's form have."""
    names = {f"{modality}s": modality for modality in modalities} | {modality: modality for modality in modalities}
    names |= {key: modality for key, modality in WELL_KNOWN.items() if key not in names}
    return names | {f"{modality}_url": modality for modality in dict.fromkeys(names.values())}


def modalities_in(turn: Mapping[str, Any], modalities: tuple[str, ...]) -> Iterator[str]:
    """Of the media that a turn names beside its content.

    Args:
        modalities: that are installed.
    """
    for key, modality in media_keys(modalities).items():
        if _holds(turn.get(key), modality, modalities):
            yield modality


def with_media(turn: Turn, own: RowMedia, root: MediaRoot) -> Turn:
    """A turn whose media are parts of its content.

    Args:
        own: the media beside the chat.
        root: where files are looked for, and what processors take beside files.

    Raises:
        SampleError: the turn names media under two keys, the row holds some of their modality too, or they have no
            place while others have one.
    """
    where, said, keys = turn
    if media_keys(own.modalities).keys().isdisjoint(said) or is_read_before():
        return turn
    held = _held(said, own, where)
    content = said.get(keys[1])
    found = {modality for modality, (_, value) in held.items() if holds_medium(value)}
    if not found and not (isinstance(content, str) and any(f"<{modality}>" in content for modality in held)):
        return turn
    for modality in found:
        if own.holds(modality):
            raise SampleError(f"{held[modality][0]} and {own.column(modality)} of the row both hold media; keep one")
    here = {modality: (key, root.taken.media(modality, value)) for modality, (key, value) in held.items()}
    media = RowMedia(here, RowTimes(said, {}, own.times.timed))
    parts = list(_placed(said, keys, where, media))
    media.check_all_taken()
    return where, {**said, keys[1]: parts}, keys


def _held(turn: Mapping[str, Any], own: RowMedia, where: str) -> Held:
    """What a turn holds under the keys of media, nothing among it where the row has no column for it: a table writes
    null where a picture is missing."""
    found: Held = {}
    for key, modality in media_keys(own.modalities).items():
        if key not in turn:
            continue
        value = turn[key]
        if not _holds(value, modality, own.modalities):
            if own.column(modality) is None and modality in own.modalities and not holds_medium(value):
                found.setdefault(modality, (f"{where}.{key}", None))
        elif modality not in found or found[modality][1] is None:
            found[modality] = (f"{where}.{key}", value)
        elif differ(found[modality][1], value):
            raise SampleError(f"{where}.{key} and {found[modality][0]} both hold media; keep one")
    return found


def _holds(value: Any, modality: str, modalities: tuple[str, ...]) -> bool:
    return holds_medium(value) if modality in modalities else is_medium(value)


def _placed(turn: Mapping[str, Any], keys: tuple[str, str], where: str, media: RowMedia) -> Iterator[dict[str, Any]]:
    """The parts of a turn's content, each medium in its place; where none has one, in front."""
    parts = parts_of(turn, keys[1], where)
    if isinstance(turn[keys[1]], str):
        media.adopt([turn[keys[1]]])
    role = ROLE_MARKS.get(str(turn.get(keys[0])), USER)
    for modality in media.leading([(role, parts)]):
        yield _part({"type": modality}, modality, media, where)
    for kind, part in parts:
        if kind != "text":
            is_place = media.column(kind) is not None and not _holds_own(part, kind)
            yield _part(part, kind, media, where) if is_place else {**part}
            continue
        for name, piece in media.split(checked_text(part.get("text"), f"{where}.text")):
            if name != "text":
                yield _part(piece, name, media, where)
            elif piece["text"]:
                yield {"type": "text", "text": piece["text"]}


def _part(place: Mapping[str, Any], modality: str, media: RowMedia, where: str) -> dict[str, Any]:
    """The part of a medium in its place, with the stretch of it that the turn means."""
    medium = media.take(modality, f"{where}: {modality} part")
    clip = None if media.times.beside(modality, place) is not None else media.times.clip(modality, medium)
    return {**place, "type": modality, modality: medium, **({} if clip is None else {"clip": clip})}


def _holds_own(part: Mapping[str, Any], kind: str) -> bool:
    """Whether a part holds a medium itself."""
    return any(holds_medium(part.get(key)) for key in (part["type"], kind, f"{kind}_url", *KEYS))
