"""Chats in which the assistant calls tools, as texts: the form of Hermes, which Qwen's models have learned, too.

The tools that a row offers stand at the end of the system's turn, calls behind what the assistant says, and what tools
have answered is a turn of the user. So the marks, or special tokens, of turns are those of any chat.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kosmos.data.marks import ASSISTANT
from kosmos.data.sources.chat_turns import LEARNED, OPENAI, ROLE_MARKS, SHAREGPT, Turn, is_something, parts_of
from kosmos.data.sources.columns import kind_of
from kosmos.errors import SampleError

CALLING = ("function_call", "tool_call")
"""Roles of turns that are calls: of LLaMA-Factory's and of ms-swift's rows."""
ANSWERING = ("tool", "function", "observation", "tool_response", "ipython")
"""Roles of what tools have answered: of the OpenAI API, LLaMA-Factory, ms-swift and Llama."""
_OF_TOOLS = (*CALLING, *ANSWERING)
_BESIDE = frozenset(("tool_calls", "function_call"))
"""Keys of the OpenAI API for calls beside the content."""
OFFER = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>",
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
)
"""What stands around the tools that are offered, each a line of JSON: word for word what those models have learned."""
CALL = "<tool_call>\n", "\n</tool_call>"
ANSWER = "<tool_response>\n", "\n</tool_response>"


def offered(tools: Any, where: str) -> str:
    """The text that offers tools; empty where none are.

    Args:
        tools: a list of them, as objects or JSON, or all of that as JSON. One without ``function`` is wrapped.
        where: what errors call them.

    Raises:
        SampleError: they are something else.
    """
    if tools is None or not is_something(tools):
        return ""
    found = _parsed(tools, where, "a list of tools")
    lines = []
    for number, given in enumerate(found if isinstance(found, list | tuple) else [found]):
        tool = _parsed(given, f"{where}[{number}]", "an object with a name")
        described = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(described, Mapping) or not isinstance(described.get("name"), str):
            raise SampleError(f"{where}[{number}]: expected an object with a name, got {kind_of(tool)}")
        whole = tool if "function" in tool else {"type": "function", "function": tool}
        lines.append("\n" + _json(whole, f"{where}[{number}]"))
    return OFFER[0] + "".join(lines) + OFFER[1]


def told(turns: Sequence[Turn]) -> Sequence[Turn]:
    """Turns in which calls, and what tools have answered, are texts; others as they are. Calls that follow what the
    assistant says are of its turn, and answers in a row are one turn of the user.

    Raises:
        SampleError: a call is none, or not the assistant's.
    """
    for _, turn, (role, _) in turns:
        if turn.get(role) in _OF_TOOLS or not _BESIDE.isdisjoint(turn):
            return list(_told(turns))
    return turns  # as most chats are


def _told(turns: Iterable[Turn]) -> Iterator[Turn]:
    last: Turn | None = None
    for where, turn, keys in turns:
        role = turn.get(keys[0])
        calls = any(is_something(turn.get(key)) for key in _BESIDE if key in turn)
        if role not in CALLING and role not in ANSWERING and not calls:
            yield from () if last is None else [last]
            last = (where, turn, keys)
            continue
        is_call = calls or role in CALLING
        content = _called(turn, keys[1], where, role) if is_call else _answered(turn, keys[1], where)
        beside = {key: value for key, value in turn.items() if key not in (*OPENAI, *SHAREGPT, *_BESIDE)}
        if last is not None and _belongs(last, role, beside):
            earlier = last[1]
            last = (last[0], {**earlier, last[2][1]: _joined(earlier.get(last[2][1]), content)}, last[2])
            continue
        yield from () if last is None else [last]
        made = {"role": "assistant"} if is_call else {"role": "user", _MADE: True}
        last = (where, {**beside, **made, "content": content}, OPENAI)
    yield from () if last is None else [last]


_MADE = "\0answers"
"""Key of a turn of the user that was made of what tools have answered; no key of a row begins so."""


def _belongs(last: Turn, role: Any, beside: Mapping[str, Any]) -> bool:
    """Whether a turn of this role goes on with the last one."""
    _, turn, keys = last
    if role in ANSWERING:
        return bool(turn.get(_MADE))
    is_said = role in CALLING and ROLE_MARKS.get(str(turn.get(keys[0]))) == ASSISTANT
    return is_said and all(turn.get(key) == beside.get(key) for key in LEARNED)


def _called(turn: Mapping[str, Any], key: str, where: str, role: Any) -> Any:
    """The content of a turn that calls: what it says, if anything, and its calls."""
    if role in CALLING:
        return _calls(turn.get(key), f"{where}.{key}")
    if ROLE_MARKS.get(str(role)) != ASSISTANT:
        raise SampleError(f"{where}: calls of tools in a turn of {role!r:.40}; they are the assistant's")
    calls = "\n".join(_calls(turn[k], f"{where}.{k}") for k in sorted(_BESIDE) if k in turn and is_something(turn[k]))
    return _joined(turn.get(key), calls)


def _calls(given: Any, where: str) -> str:
    found = _parsed(given, where, "calls of tools")
    calls = found if isinstance(found, list | tuple) else [found]
    return "\n".join(
        _call(call, f"{where}[{number}]" if found is calls else where) for number, call in enumerate(calls)
    )


def _call(given: Any, where: str) -> str:
    call = given.get("function", given) if isinstance(given, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
        raise SampleError(f"{where}: expected a call, an object with name and arguments, got {kind_of(given)}")
    arguments = call.get("arguments")
    arguments = _parsed(arguments, f"{where}.arguments", "an object") if arguments not in (None, "") else {}
    if not isinstance(arguments, Mapping):
        raise SampleError(f"{where}.arguments: expected an object, got {kind_of(arguments)}")
    written = _json(arguments, f"{where}.arguments")
    return f'{CALL[0]}{{"name": {_json(call["name"], where)}, "arguments": {written}}}{CALL[1]}'


def _answered(turn: Mapping[str, Any], key: str, where: str) -> Any:
    """The content of a turn of the user for what a tool has answered: text, an object, or parts."""
    content = turn.get(key)
    if isinstance(content, Mapping) or (isinstance(content, list | tuple) and not _are_parts(content)):
        content = _json(content, f"{where}.{key}")
    if isinstance(content, str):
        return f"{ANSWER[0]}{content}{ANSWER[1]}"
    return [_text(ANSWER[0]), *(part for _, part in parts_of(turn, key, where)), _text(ANSWER[1])]


def _are_parts(content: Iterable[Any]) -> bool:
    return all(isinstance(part, Mapping) and isinstance(part.get("type"), str) for part in content)


def _joined(first: Any, second: Any) -> Any:
    """Two contents of a turn as one, the second on a line of its own; the second alone where the first says nothing."""
    if first in (None, "", [], ()):
        return second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n{second}"
    return [*_as_parts(first), _text("\n"), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    return [_text(content)] if isinstance(content, str) else list(content)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _parsed(given: Any, where: str, expected: str) -> Any:
    """What a text says as JSON; anything else as it is."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        raise SampleError(f"{where}: expected {expected}, as JSON, got {given!r:.60}") from error


def _json(value: Any, where: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:  # a table may hold times and bytes
        raise SampleError(f"{where}: cannot be written as JSON ({error}); write it as text") from error
