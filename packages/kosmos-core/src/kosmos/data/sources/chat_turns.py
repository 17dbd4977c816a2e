"""The turns of a chat as rows have them: whose each is, its parts, and whether it is learned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from kosmos.data.marks import ASSISTANT, SYSTEM, USER
from kosmos.data.sources.columns import did_you_mean, kind_of
from kosmos.errors import SampleError
from kosmos.names import nearest, plain

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
Turn = tuple[str, Mapping[str, Any], Keys]
"""Its place, as errors call it, what the row has there, and its keys."""
Parts = list[tuple[str, Mapping[str, Any]]]
"""Those of a turn, with their kinds."""
OPENAI: Keys = ("role", "content")
SHAREGPT: Keys = ("from", "value")
OFFERED = ("tools", "functions")
"""Roles and keys under which tools are offered: left out, the model would learn to know of none, or to make them up."""
_THOUGHTS = "thoughts beside the content", "it as text, or leave them out"
BESIDE_CONTENT = {
    "function_calls": (
        "calls of tools as a text",
        "the content as text, or as tool_calls",
    ),  # left out, nothing is said
    **dict.fromkeys(OFFERED, ("tools that a turn offers", "the text of the system, or beside the chat")),
    "reasoning_content": _THOUGHTS,  # left out, it would teach to answer without
    "reasoning": _THOUGHTS,
    "thinking": _THOUGHTS,
}
"""Keys of a turn under which the OpenAI API, and others after it, have what belongs to what is said and is not read."""

LEARNED = ("loss", "loss_scale", "weight", "train")
"""Keys by which ms-swift (the first two), the OpenAI API and our own segments say whether a turn is learned."""
_SAYS_NO = {
    **dict.fromkeys(("learn", "learned", "trained", "trainable", "loss_mask"), 0),
    **dict.fromkeys(("mask", "masked", "no_loss"), 1),
}
"""Other keys by which a turn may be meant to be left out, with what says so."""


@lru_cache(maxsize=4096)
def _unread_no(key: str) -> tuple[str, int] | None:
    """The key of ``LEARNED`` that another is in the place of, and the value by which it would leave a turn out; None of
    keys that mean something else. One that is mistyped lacks a letter, or has two changed: ``lost`` is a word."""
    said = plain(key)
    for name, value in _SAYS_NO.items():
        if said == plain(name):
            return "loss", value
    for name in LEARNED:
        own = plain(name)
        swapped = (own[:n] + own[n + 1] + own[n] + own[n + 2 :] for n in range(1, len(own) - 1))
        if said in {own, *(own[:n] + own[n + 1 :] for n in range(1, len(own))), *swapped}:
            return name, 0
    return None


def turns_of(turns: Any, name: str) -> Iterator[Turn]:
    """Each turn of a chat, with the keys that its role and its content are, or should be, under.

    Args:
        name: what errors call the chat.

    Raises:
        SampleError: it is no list, or an element of it no object.
    """
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


def read_turn(turn: Mapping[str, Any], keys: Keys, where: str) -> tuple[str, Parts]:
    """The mark of a turn's role, and its parts. Raises SampleError where it is malformed, or says something beside."""
    check_all_said(turn, where)
    return _role(turn, keys[0], where), parts_of(turn, keys[1], where)


def parts_of(turn: Mapping[str, Any], key: str, where: str) -> Parts:
    """The parts of one turn. ``key`` is that of its content. Raises SampleError where it has none, or is none."""
    content = turn.get(key)
    if isinstance(content, str):
        return [("text", {"text": content})]
    if not isinstance(content, list | tuple):
        _check_there(turn, key, where)
        raise SampleError(f"{where}.{key}: expected text or a list of parts, got {kind_of(content)}")
    return [(part_kind(part, f"{where}.{key}[{n}]"), part) for n, part in enumerate(content)]


def part_kind(part: Any, where: str) -> str:
    """``text`` or the modality of a part: its type without ``input_``, ``output_`` and ``_url``.

    Raises:
        SampleError: no object with a type, or one that is ``text`` mistyped.
    """
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise SampleError(f"{where}: expected an object with a type, got {kind_of(part)}")
    kind: str = part["type"]
    kind = kind.removeprefix("input_").removeprefix("output_").removesuffix("_url")
    if kind != "text" and isinstance(part.get("text"), str) and nearest(kind, ["text"]):
        raise SampleError(f"{where}: unknown type {kind!r:.40}; did you mean text?")
    return kind


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


def check_all_said(turn: Mapping[str, Any], where: str) -> None:
    """Raises SampleError where a turn says something beside its content that is not read."""
    for key, (what, place) in BESIDE_CONTENT.items():
        if (said := turn.get(key)) is not None and is_something(said):
            raise SampleError(f"{where}.{key}: {what} are not read; write them into {place}")


def is_something(value: Any) -> bool:
    """Whether a value says anything. Nothing is null, what is empty, that as JSON, and lists and objects of nothing."""
    if isinstance(value, str):
        return value.strip() not in ("", "null", "[]", "{}")
    if isinstance(value, Mapping):
        return any(map(is_something, value.values()))
    return any(map(is_something, value)) if isinstance(value, list | tuple) else bool(value)


def is_learned(turn: Mapping[str, Any], where: str) -> bool:
    """Whether a turn of the assistant is to be learned: any of ``LEARNED`` may say no.

    Raises:
        SampleError: one of them says something between, or is mistyped.
    """
    learned = True
    for key in LEARNED:
        if (said := turn.get(key)) is not None:
            if said not in (0, 1):  # false and true among them
                raise SampleError(f"{where}.{key}: expected 0 or 1, false or true, got {said!r:.40}")
            learned &= bool(said)
    for key, value in turn.items():
        if key not in LEARNED and (meant := _unread_no(key)) is not None and value == meant[1]:
            advice = '"loss": false leaves out what a turn says'
            raise SampleError(f"{where}.{key}: no key of a turn; did you mean {meant[0]}? {advice}")
    return learned
