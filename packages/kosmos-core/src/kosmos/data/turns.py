"""Turns of a chat as a published model has learned them, spelled by the special tokens of its tokenizer. No torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from kosmos.chats import CONTENT, LAYOUTS
from kosmos.data.document import Document, Mark, Segment, Text
from kosmos.data.marks import ASSISTANT, BOS, EOS, SYSTEM, USER
from kosmos.data.tokenizer import Tokenizer
from kosmos.errors import ConfigError, SampleError
from kosmos.names import did_you_mean, listed

ROLES = {SYSTEM: "system", USER: "user", ASSISTANT: "assistant"}
"""The mark of a role to its name."""

_WHERE = "tokenizer.turns"
_NONE = f"{_WHERE}=null puts turns between marks"
_LOOKS_SPECIAL = r"<\|[^<>\s|]+\|>|</?[a-z_]+>"
_NO_LAYOUT_OF_OURS = "<|im_sep|>"
"""Of tokenizers that have the special tokens of ChatML, and spell turns otherwise (Phi 4)."""

Part = int | str
"""A special token, or plain text."""


@dataclass(frozen=True)
class Turns:
    """What stands around the turns of a chat, in place of ``<s>``, a role's mark, ``<|end|>`` and ``</s>``."""

    begin: tuple[Part, ...]
    """In front of a chat."""
    around: Mapping[str, tuple[tuple[Part, ...], tuple[Part, ...]]]
    """The mark of a role to what is in front of and behind what is said."""
    trim: bool = False
    """Whether what is said loses the space around it."""

    @property
    def stop(self) -> int:
        """Ends what the assistant says: learned with it, and generation ends at it."""
        stop = self.around[ASSISTANT][1][0]
        assert isinstance(stop, int)
        return stop

    def of(self, mark: str) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
        """Of a role. Raises SampleError where such turns are not spelled."""
        if mark not in self.around:
            raise SampleError(
                f"a turn of the {ROLES[mark]}, and {_WHERE} has none; put its text into the user's turn, or begin a "
                f"run with {_WHERE}.{ROLES[mark]}"
            )
        return self.around[mark]

    def segments(self, document: Document) -> Iterable[Segment]:
        """Of a chat, as they are to be spelled."""
        return _trimmed(document.segments) if self.trim else document.segments


def is_chat(document: Document) -> bool:
    """Whether the document has turns."""
    return any(map(is_turn, document.segments))


def is_turn(segment: Segment) -> bool:
    """Whether a turn begins with it."""
    return isinstance(segment, Mark) and segment.name in ROLES


def _trimmed(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Without the space at the begin and the end of what lies between marks."""
    for is_mark, run in groupby(segments, lambda segment: isinstance(segment, Mark)):
        said = list(run)
        if not is_mark:
            said = _without_space(said[::-1], str.rstrip)[::-1]
            said = _without_space(said, str.lstrip)
        yield from said


def _without_space(said: list[Segment], strip: Callable[[str], str]) -> list[Segment]:
    """Texts up to the first of which something is left, or to a medium."""
    for place, segment in enumerate(said):
        if not isinstance(segment, Text):
            break
        said[place] = replace(segment, text=strip(segment.text))
        if strip(segment.text):
            break
    return said


def spell_turns(texts: Mapping[str, Any], tokenizer: Tokenizer) -> Turns:
    """``texts`` as special tokens of the tokenizer and plain text between them.

    Args:
        texts: the fields of ``tokenizer.turns``: ``begin``, ``trim``, and of each role a text with one ``{}``.

    Raises:
        ConfigError: the assistant's turn does not end with a special token, at which generation could stop, or a text
            holds what looks like a special token and is none.
    """
    special = {BOS: tokenizer.mark_id(BOS), EOS: tokenizer.mark_id(EOS), **tokenizer.special_ids}
    around = {}
    for mark, role in ROLES.items():
        if text := texts.get(role):
            before, _, after = text.partition(CONTENT)
            around[mark] = _parts(before, special, role, tokenizer), _parts(after, special, role, tokenizer)
    behind = around[ASSISTANT][1]
    if not behind or not isinstance(behind[0], int):
        raise ConfigError(
            f"{_WHERE}.assistant: expected a special token of the tokenizer right behind {CONTENT}, at which an answer "
            f"ends, got {texts['assistant']!r}; its special tokens are {listed(sorted(special), at_most=12)}; {_NONE}"
        )
    turns = Turns(_parts(texts.get("begin") or "", special, "begin", tokenizer), around, bool(texts.get("trim")))
    for part in (part for parts in ((turns.begin,), *around.values()) for side in parts for part in side):
        _check_plain(part, tokenizer)
    return turns


def _parts(text: str, special: Mapping[str, int], field: str, tokenizer: Tokenizer) -> tuple[Part, ...]:
    takes_space: Mapping[str, tuple[bool, bool]] = getattr(tokenizer, "takes_space", {})
    longest_first = sorted(special, key=len, reverse=True)
    pieces = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
    found: list[Part] = []
    for place, piece in enumerate(pieces):
        if piece in special:
            found.append(special[piece])
            continue
        if wrong := re.search(_LOOKS_SPECIAL, piece):
            said = did_you_mean(wrong[0], special) or f"there are {listed(sorted(special), at_most=12)}"
            raise ConfigError(f"{_WHERE}.{field}: {wrong[0]} is no special token of the tokenizer; {said}; {_NONE}")
        if place and takes_space.get(pieces[place - 1], (False, False))[1]:
            piece = piece.lstrip()
        if place + 1 < len(pieces) and takes_space.get(pieces[place + 1], (False, False))[0]:
            piece = piece.rstrip()
        found += [piece] if piece else []
    return tuple(found)


def _check_plain(part: Part, tokenizer: Tokenizer) -> None:
    try:
        if isinstance(part, str):
            tokenizer.encode(part)
    except (SampleError, UnicodeError) as error:
        raise ConfigError(f"{_WHERE}: {part!r} cannot be spelled by the tokenizer ({error})") from error


def fitting(tokenizer: Tokenizer) -> str | None:
    """The known layout whose special tokens the tokenizer has, which its model has learned then, as a rule."""
    has = tokenizer.special_ids.keys()
    for name, texts in LAYOUTS.items():
        wanted = re.findall(_LOOKS_SPECIAL, "".join(str(text) for text in texts.values()))
        if has >= {*wanted} and _NO_LAYOUT_OF_OURS not in has:
            return name
    return None
