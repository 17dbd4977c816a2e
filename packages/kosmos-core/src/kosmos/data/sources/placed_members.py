"""Files of a sample of an archive that its ``.json`` has in their places: in segments, and in the turns of a chat.

Only what would be read as a medium names one. A text that is the name of a file is what somebody says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kosmos.data.sources.chat_turns import OPENAI, SHAREGPT
from kosmos.data.sources.media import KEYS
from kosmos.data.sources.members import Members
from kosmos.data.sources.turn_media import media_keys

_NO_MEDIUM = ("text", "train")
"""Keys of a segment that hold none."""


def in_segments(members: Members, parts: Any) -> set[str]:
    """Suffixes of the files that segments name as their media."""
    held = (value for part in _objects(parts) for key, value in part.items() if key not in _NO_MEDIUM)
    return members.named([*_names_in(held)])


def in_chat(members: Members, turns: Any, modalities: tuple[str, ...]) -> set[str]:
    """Suffixes of the files that the turns of a chat name, in parts of their content or beside it.

    Args:
        modalities: that turns may have media of (``media_keys``).
    """
    held: list[Any] = []
    keys = media_keys(modalities)
    for turn in _objects(turns):
        held += [turn[key] for key in keys if key in turn]
        for part in (part for key in (OPENAI[1], SHAREGPT[1]) for part in _objects(turn.get(key))):
            kind = str(part.get("type"))
            if kind != "text":
                plain = kind.removeprefix("input_").removeprefix("output_").removesuffix("_url")
                held += [part.get(key) for key in (kind, plain, f"{plain}_url", *KEYS)]
    return members.named([*_names_in(held)])


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    for one in value if isinstance(value, list | tuple) else ():
        if isinstance(one, Mapping):
            yield one


def _names_in(held: Any) -> Iterator[str]:
    """The names of files in what is read as media: a name, an object with one, or a list of them."""
    for value in held:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from _names_in(value.get(key) for key in ("path", "url"))
        elif isinstance(value, list | tuple):
            yield from _names_in(value)
