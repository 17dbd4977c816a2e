"""Chats in the form of the OpenAI API: roles become marks, the loss looks at the assistant's turns alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kosmos.data.document import Mark, Segment, Text
from kosmos.data.sources.columns import Row, checked_text, did_you_mean, kind_of
from kosmos.data.sources.media import read_media
from kosmos.data.tokenizer import ASSISTANT, END, SYSTEM, USER
from kosmos.errors import SampleError

ROLE_MARKS = {"system": SYSTEM, "developer": SYSTEM, "user": USER, "assistant": ASSISTANT}


def part_kind(part: Any, where: str) -> str:
    """``text`` or the modality of a part: its type without ``input_``, ``output_`` and ``_url``.

    Raises:
        SampleError: no object with a type.
    """
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise SampleError(f"{where}: expected an object with a type, got {kind_of(part)}")
    kind: str = part["type"]
    return kind.removeprefix("input_").removeprefix("output_").removesuffix("_url")


def _parts(turn: Any, where: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The parts of one turn, with their kinds."""
    if not isinstance(turn, Mapping):
        raise SampleError(f"{where}: expected an object, got {kind_of(turn)}")
    content = turn.get("content")
    if isinstance(content, str):
        return [("text", {"text": content})]
    if not isinstance(content, list | tuple):
        raise SampleError(f"{where}.content: expected text or a list of parts, got {kind_of(content)}")
    return [(part_kind(part, f"{where}.content[{n}]"), part) for n, part in enumerate(content)]


def _turns(turns: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(turns, list | tuple) or not turns:
        raise SampleError(f"messages: expected a list that is not empty, got {kind_of(turns)}")
    yield from ((f"messages[{n}]", turn) for n, turn in enumerate(turns))


def needs(turns: Any) -> frozenset[str]:
    """Modalities of the parts of a chat.

    Raises:
        SampleError: the chat is malformed.
    """
    return frozenset(kind for where, turn in _turns(turns) for kind, _ in _parts(turn, where) if kind != "text")


def read(turns: Any, row: Row, root: Path) -> Iterator[Segment]:
    """Segments of a chat: the role's mark, the content, ``<|end|>`` for each turn.

    A part that only says ``{"type": "image"}`` takes the next one of the row's ``image`` or ``images``.

    Raises:
        SampleError: the chat is malformed, or nothing in it is the assistant's.
    """
    pending: dict[str, list[Any]] = {}
    answers = 0
    for where, turn in _turns(turns):
        parts = _parts(turn, where)
        role = turn.get("role")
        if not isinstance(role, str) or role not in ROLE_MARKS:
            raise SampleError(f"{where}.role: unknown role {role!r:.40}{did_you_mean(str(role), ROLE_MARKS)}")
        train = role == "assistant"
        answers += train
        yield Mark(ROLE_MARKS[role])
        for kind, part in parts:
            if kind == "text":
                if text := checked_text(part.get("text"), f"{where}.text"):
                    yield Text(text, train=train)
            else:
                value = _part_value(kind, part, row, pending, where)
                yield from read_media(kind, value, root, part.get("clip"))
        yield Mark(END, train=train)
    if not answers:
        raise SampleError("messages: no turn of the assistant, so nothing to learn")


def _part_value(kind: str, part: Mapping[str, Any], row: Row, pending: dict[str, list[Any]], where: str) -> Any:
    """What a part of a medium holds, or the next medium of the row's own column."""
    for key in (part["type"], kind, f"{kind}_url"):
        if part.get(key) is not None:
            return part[key]
    if any(part.get(key) is not None for key in ("bytes", "data", "path", "url")):
        return part
    if kind not in pending:
        column = row.get(f"{kind}s", row.get(kind))
        pending[kind] = list(column) if isinstance(column, list | tuple) else [] if column is None else [column]
    if not pending[kind]:
        raise SampleError(f"{where}: {part['type']} part holds no medium, and the row has none (left) in {kind}s")
    return pending[kind].pop(0)
