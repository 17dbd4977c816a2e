"""Several right answers to one question, as rows of public data sets have them.

| form | from |
|---|---|
| ``["nokia", "nokia", "toshiba"]``: a list of texts | TextVQA, DocVQA, OK-VQA |
| ``[{"answer": "yes"}, ...]``: a list of objects | VQAv2 |
| ``{"text": ["Denver", ...]}``: an object with a list | SQuAD |
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kosmos.data.sources.columns import is_empty, kind_of, text_value
from kosmos.data.sources.json_values import read_json_text
from kosmos.errors import ConfigError, SampleError

REFERENCES = "references"
"""What ``columns`` may name: the right answers to what a row asks, for metrics."""
_ROLE = re.compile(rf"{REFERENCES}(\[\d+\])?")
ANSWERS = "answers"
"""Column and role of a question's right answers, of which the most frequent one is learned."""
_KEYS = ("answer", "text")
"""Of an object, what holds an answer, or a list of them."""
_PATHS = (ANSWERS, *(f"{ANSWERS}.{key}" for key in _KEYS))


def names_answers(path: str, columns: Mapping[str, str]) -> bool:
    """Whether a column or nested path is that of a question's right answers, by its name or by ``columns``."""
    return path in _PATHS or path == columns.get(ANSWERS)


def right_answers(value: Any, what: str) -> tuple[str, ...]:
    """All right answers in a value, in their order; of nothing, such as an empty list, none.

    Args:
        what: the value's name in messages.

    Raises:
        SampleError: it is none of the forms above, and no text.
    """
    if is_empty(value):
        return ()
    if isinstance(value, Mapping):
        return right_answers(*_held(value, what))
    if not isinstance(value, list | tuple):
        return (text_value(value, what),)
    found = [(one, f"{what}[{number}]") for number, one in enumerate(value) if one is not None]
    held = (_held(one, where) if isinstance(one, Mapping) else (one, where) for one, where in found)
    return tuple(_plain(one, where) for one, where in held)


def learned_answer(value: Any, what: str) -> str:
    """The most frequent right answer as it is written; of equally frequent ones the first.

    Empty ones say nothing, and count only where there are no others.

    Raises:
        SampleError: there is none, or as ``right_answers``.
    """
    if not (answers := right_answers(value, what)):
        got = kind_of(value) if isinstance(value, list | tuple) or value is None else "nothing"
        raise SampleError(f"{what}: expected at least one right answer, got {got}")
    said = [answer for answer in answers if answer.strip()] or answers
    return Counter(said).most_common(1)[0][0]


def reference_roles(columns: Mapping[str, str]) -> list[str]:
    """Roles of the columns that ``columns`` names for the right answers: ``references``, and ``references[1]`` and so
    on where there are several columns (``kosmos.config_rows``)."""
    return [role for role in columns if _ROLE.fullmatch(role)]


def check_references(columns: Collection[str]) -> None:
    """Raises ConfigError where who names columns writes the roles of several for the right answers themselves."""
    if role := next((name for name in columns if name != REFERENCES and _ROLE.fullmatch(name)), None):
        raise ConfigError(
            f"columns.{role}: no modality and no role; name several as a list "
            f"(columns: {{{REFERENCES}: [COLUMN, COLUMN]}})"
        )


def with_references(columns: Mapping[str, str]) -> dict[str, str | list[str]]:
    """``columns`` with one list where they name several for the right answers, as they are written."""
    several = [columns[role] for role in reference_roles(columns)]
    others: dict[str, str | list[str]] = {r: c for r, c in columns.items() if r == REFERENCES or not _ROLE.fullmatch(r)}
    return {**others, REFERENCES: several} if len(several) > 1 else others


def named_references(value_of: Callable[[str], Any], columns: Mapping[str, str]) -> tuple[str, ...]:
    """The right answers in the columns that ``columns`` names for them. Of several columns each holds a text, which may
    begin with a bracket, or a list, which a table of texts has as JSON.

    Args:
        value_of: what the row has in the column of a role.

    Raises:
        SampleError: as ``right_answers``.
    """
    roles = reference_roles(columns)
    values = [(value_of(role), columns[role]) for role in roles]
    values = [(_list_of_texts(value), column) for value, column in values] if len(roles) > 1 else values
    found = (answer for value, column in values for answer in right_answers(value, column))
    return tuple(answer for answer in found if answer.strip())


def _list_of_texts(value: Any) -> Any:
    """The list that a text says, where it is JSON of a list of texts; any other value as it is."""
    said = read_json_text(value)[0] if isinstance(value, str) else None
    return said if isinstance(said, list) and said and all(isinstance(one, str) for one in said) else value


def several(answers: Sequence[str]) -> tuple[str, ...]:
    """``answers`` that say something, where there are two or more."""
    found = tuple(answer for answer in answers if answer.strip())
    return found if len(found) > 1 else ()


def _held(value: Mapping[str, Any], what: str) -> tuple[Any, str]:
    """What an object has as its answer, and its name."""
    key = next((key for key in _KEYS if key in value), None)
    if key is None:
        raise SampleError(f"{what}: expected a text, or an object with 'answer' or 'text', got an object with neither")
    return value[key], f"{what}.{key}"


def _plain(value: Any, what: str) -> str:
    """A text or a number; a list within a list is no answer."""
    if isinstance(value, list | tuple):
        raise SampleError(f"{what}: expected text, got {kind_of(value)}")
    return text_value(value, what)
