"""Under which keys lines of answers have what was answered, and what is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kosmos.commands.fields import are_fields, yaml_of
from kosmos.errors import ConfigError, SampleError

Line = Mapping[str, Any]
ANSWERS = ("answer", "prediction", "predictions", "hypothesis", "pred_text")
"""Keys of what was answered; the first that a line has counts. The last is NeMo's."""
RIGHT = ("expected", "reference", "references")
"""Keys of what is right: a text, a number or a list of these. All of them count, and the first is what is expected."""
BESIDE = {"hypothesis": "text", "pred_text": "text"}
"""Keys of answers, to what is right where no line of a file has any of ``RIGHT``: a text alone may be anything."""
_OTHERS = ("premise", "label")
"""Keys that say that a text beside a hypothesis is not what was said: what is asked is whether one follows."""
ROLES = ("answer", "expected", "references")
SUCH_AS = "'{path: FILE, columns: {answer: said, expected: truth}}'"


def named_file(text: str) -> tuple[str, dict[str, str]]:
    """A file of answers, and its columns by role, as the argument of the command names them.

    Raises:
        ConfigError: it is neither a path nor such fields.
    """
    if not are_fields(text):
        return text, {}
    fields = yaml_of("FILE", text, f"a path, or fields as {SUCH_AS}")
    if not isinstance(fields, Mapping) or not {"path"} <= {*fields} <= {"path", "columns"}:
        raise ConfigError(f"{text}: expected a path, or fields as {SUCH_AS}")
    path, columns = fields["path"], fields.get("columns") or {}
    if not isinstance(path, str) or not isinstance(columns, Mapping):
        raise ConfigError(f"{text}: expected a path, or fields as {SUCH_AS}")
    for role, column in columns.items():
        if role not in ROLES or not isinstance(column, str):
            raise ConfigError(f"columns.{role}: expected one of {', '.join(ROLES)}, with the key of it in the lines")
    return path, dict(columns)


def right_beside(lines: Sequence[Line]) -> str | None:
    """Under which key the lines of a file, in all of which no known key says it, have what is right; None is none."""
    names = {name for line in lines for name in line}
    answer = next((name for name in ANSWERS if name in names), "")
    beside = BESIDE.get(answer)
    return beside if beside in names and names.isdisjoint((*RIGHT, *_OTHERS)) else None


def by_role(line: Line, columns: Mapping[str, str]) -> Line:
    """A line under the keys that are known. Where a role is named, other keys of its kind say nothing.

    Raises:
        SampleError: it has no answer where that is named.
    """
    if not columns:
        return line
    from kosmos.data.sources.columns import look_up

    of_answers = ANSWERS if "answer" in columns else ()
    of_right = RIGHT if {"expected", "references"} & {*columns} else ()
    kept = {name: value for name, value in line.items() if name not in (*of_answers, *of_right)}
    found = {}
    for role, column in columns.items():
        try:
            found[role] = look_up(line, column)
        except SampleError as error:
            if role == "answer":
                raise SampleError(f"columns.{role}: {error}") from error  # what is right a line may lack
    return {**kept, **found}
