"""Whether two lines of answers are of the same question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from kosmos.commands.answer_columns import Line
from kosmos.data.marks import ASSISTANT, END, SYSTEM, USER
from kosmos.data.shots import BETWEEN

if TYPE_CHECKING:
    from kosmos.evaluate.answer import Generated

_TURNS = re.compile("|".join(map(re.escape, (SYSTEM, USER, ASSISTANT))))


def unlike(one: Line, other: Line) -> tuple[str, Any, Any] | None:
    """In which key two lines are of other questions, and what each has there; None where they are of the same.

    Only keys that both have are compared. Examples in front of a question (few-shot) are none of it, and nor are the
    marks of a chat.
    """
    for key in ("id", "choices"):
        if _has(key, one, other) and _plain(one[key]) != _plain(other[key]):
            return key, one[key], other[key]
    (prompt, media), (its_prompt, its_media) = _question(one), _question(other)
    if prompt is not None and its_prompt is not None and prompt != its_prompt:
        if not _differ_in_front(one, other, prompt, its_prompt):
            return "prompt", prompt, its_prompt
        # How many media stand in front is not known: at least the last ones are those of the question.
        shared = min(len(media), len(its_media)) if _is_end(prompt, its_prompt) else 1
        media, its_media = media[-shared:] if shared else (), its_media[-shared:] if shared else ()
    if _has("media", one, other) and list(media) != list(its_media):
        return "media", list(media), list(its_media)
    return None


def unlike_right(one: Generated, other: Generated) -> tuple[str, Any, Any] | None:
    """Likewise, of what is right: references are compared where both have several, in any order."""
    if one.expected != other.expected:
        return "expected", one.expected, other.expected
    each = [sorted(map(str.strip, answer.references)) for answer in (one, other)]
    if not all(each) or each[0] == each[1]:
        return None
    return "references", [*one.references], [*other.references]


def in_front(one: Line, other: Line) -> bool:
    """Whether something else stands in front of the same question: other examples, or none."""
    prompts = [_text(line.get("prompt")) for line in (one, other)]
    media = [line.get("media") for line in (one, other)]
    return None not in prompts and (prompts[0] != prompts[1] or (None not in media and media[0] != media[1]))


def ask_again(lines: Iterable[tuple[str, Line, str | None]]) -> bool:
    """Whether two sources ask the same questions, or most of those of the smaller one, as one file with and without
    examples does. Lines that do not say what they ask are the same as none.

    Args:
        lines: each with its source, and with what is expected.
    """
    sizes, shared = Counter[str](), Counter[tuple[str, str]]()
    called: dict[tuple[str, ...], list[tuple[str, Line, str | None]]] = {}
    for one in lines:
        source, line, _ = one
        sizes[source] += 1
        names = tuple(f"{key} {line[key]}" for key in ("document", "id") if line.get(key) is not None)
        if names and _question(line)[0] is not None:
            called.setdefault(names, []).append(one)
    for of_name in called.values():
        pairs = {
            (min(a, b), max(a, b))
            for (a, one, right), (b, other, its_right) in combinations(of_name, 2)
            if a != b and right == its_right and unlike(one, other) is None
        }
        shared.update(pairs)
    return any(2 * count > min(sizes[name] for name in pair) for pair, count in shared.items())


def _has(key: str, *lines: Line) -> bool:
    return all(line.get(key) is not None for line in lines)


def _plain(value: Any) -> Any:
    """Numbers are texts, as in a table."""
    return [*map(_plain, value)] if isinstance(value, list) else str(value)


def _question(line: Line) -> tuple[str | None, Sequence[Any]]:
    """What is asked, without examples where the line says what it is without."""
    own = line.get("question")
    asked = own if isinstance(own, Mapping) else line
    prompt, media = asked.get("prompt", own if isinstance(own, str) else None), asked.get("media")
    return _text(prompt), media if isinstance(media, list) else () if media is None else (media,)


def _text(prompt: Any) -> str | None:
    """Of a chat without its marks, a turn above the other."""
    return _TURNS.sub("", prompt.replace(END, BETWEEN)).strip() if isinstance(prompt, str) else None


def _is_end(prompt: str, other: str) -> bool:
    """Whether the longer one has more in front."""
    short, long = sorted((prompt, other), key=len)
    return long.endswith(short) and long[: len(long) - len(short)].endswith("\n")


def _differ_in_front(one: Line, other: Line, prompt: str, its: str) -> bool:
    if all(isinstance(line.get("question"), Mapping) for line in (one, other)):
        return False
    # Of two that both have examples in front nobody knows where the question begins, but the same row asks the same.
    ends = [text.rpartition(BETWEEN)[2] for text in (prompt, its)]
    return _is_end(prompt, its) or (_has("id", one, other) and ends[0] == ends[1] != "")
