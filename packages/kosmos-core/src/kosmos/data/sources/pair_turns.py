"""The turns of answers in rows of preferences: alone, behind their prompt, and in place of the end of a chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kosmos.data.marks import ASSISTANT, USER
from kosmos.data.sources.chat_turns import ROLE_MARKS, is_something, turns_of
from kosmos.data.sources.columns import Row, kind_of, text_value
from kosmos.data.sources.preferences import CHOSEN, REJECTED
from kosmos.data.sources.tools import CALLING
from kosmos.errors import SampleError

Turns = list[Mapping[str, Any]]
Two = tuple[Row, Row]
"""The better row and the worse one."""


def after(rest: Row, column: str, prompt: Turns, chosen: str | Turns, rejected: str | Turns, name: str = "") -> Two:
    """The rows of a prompt that is a chat.

    Args:
        column: of the chats that are made.
        name: what errors call the prompt, where not as ``column``.
    """
    better, worse = as_turns(chosen), as_turns(rejected)
    if is_assistants(better[0]) and is_assistants(worse[0]):
        if is_assistants(prompt[-1]):
            if says(prompt[-1]) != says(better[0]):
                raise SampleError(f"{name or column} ends with an answer, and {CHOSEN} is another; leave one out")
            prompt = prompt[:-1]
        return {**rest, column: [*prompt, *better]}, {**rest, column: [*prompt, *worse]}
    asked, told, others = ([*map(says, turns)] for turns in (prompt, better, worse))
    if asked != told and (told[: len(asked)] != asked or others[: len(asked)] != asked):
        raise SampleError(
            f"{CHOSEN} and {REJECTED} are neither answers nor chats that begin with {name or column}; give the turns "
            "behind it alone"
        )
    return {**rest, column: better}, {**rest, column: worse}


def answer_in(value: Any, name: str) -> str | Turns:
    """An answer as a text, or as turns of a chat. Raises SampleError where it is several, or something else."""
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, list | tuple) and isinstance(value[0], Mapping):
        return turns_in(value, name)
    if isinstance(value, list | tuple) and len(value) > 1:
        raise SampleError(f"{name}: a list of {len(value)} answers; a pair has one, so write the one that is meant")
    return text_value(value[0] if isinstance(value, list | tuple) else value, name)


def turns_in(turns: Any, name: str) -> Turns:
    return [turn for _, turn, _ in turns_of(turns, name)]


def as_turns(said: str | Turns) -> Turns:
    return [{"role": "assistant", "content": said}] if isinstance(said, str) else said


def plain_text(said: str | Turns) -> str | Turns:
    """The text of a turn that is all, and says nothing else."""
    if isinstance(said, str) or len(said) > 1:
        return said
    role, content = says(said[0])
    keys = {key for key, value in said[0].items() if value is not None}
    return content if role == ASSISTANT and isinstance(content, str) and len(keys) == len(("role", "content")) else said


def says(turn: Mapping[str, Any]) -> tuple[Any, Any]:
    """Whose turn it is, and what it says."""
    [(_, _, (role, content))] = turns_of([turn], "")
    return ROLE_MARKS.get(str(turn.get(role)), turn.get(role)), turn.get(content)


def has_user(turns: Turns) -> bool:
    return any(says(turn)[0] == USER for turn in turns)


def prompt_of(turns: Turns, said: Turns) -> Turns:
    """What was answered with ``said`` in place of the end of a chat: its last turn, or with tools all behind what the
    user has asked last."""
    if all(map(is_assistants, said)):
        return turns[:-1]
    return turns[: max((n + 1 for n, turn in enumerate(turns) if says(turn)[0] == USER), default=0)]


def is_answered(turns: Any, name: str) -> bool:
    """Whether a chat ends with an answer."""
    return is_assistants(turns_in(turns, name)[-1])


def told_of(value: Any) -> str:
    """What stands in the place of an answer."""
    empty = value is None or (isinstance(value, str | bytes | list | tuple | Mapping) and not is_something(value))
    got = kind_of(value)
    return f"is empty{' (null)' if value is None else ''}" if empty else f"is no text and no turn, but {got}"


def is_assistants(turn: Mapping[str, Any]) -> bool:
    role, _ = says(turn)
    return role == ASSISTANT or role in CALLING
