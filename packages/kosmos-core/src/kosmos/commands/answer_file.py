"""Answers that are in a file: JSON lines, CSV or TSV. Imports no torch."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kosmos.commands.answer_columns import ANSWERS, RIGHT, SUCH_AS, Line, by_role, right_beside
from kosmos.errors import DataError, SampleError
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.evaluate.answer import Generated

WRITTEN = {"choices": "[", "media": "[", "question": "{"}
"""Columns of tables in which lists or objects are written, and how these begin."""
YES, NO = ("true", "1", "1.0", "yes"), ("false", "0", "0.0", "no")


class Answered(NamedTuple):
    """A line of answers."""

    line: Line
    answer: Generated
    where: str
    """The file and the number of the line."""

    def source(self, path: Path) -> str:
        """What its source is called; that of lines which name none is their file, at ``path``."""
        source = self.line.get("source")
        return source if isinstance(source, str) else path.stem


def read_answers(path: Path, columns: Mapping[str, str], *, may_be_cut: bool) -> tuple[list[Answered], int]:
    """The lines with what they answer, and how many have no right answer.

    Args:
        columns: by role, where they are named.
        may_be_cut: the last line may be, and is then passed over.

    Raises:
        DataError: the file cannot be read, a line is no answer, or none has a right one.
    """
    found: list[Answered] = []
    without = 0
    lines = list(_lines(path, columns, may_be_cut=may_be_cut))
    beside = None if columns else right_beside([line for _, line in lines])
    if beside is not None:
        say(f"hint: {path}: expected is read from {beside}", file=sys.stderr)
        columns = {"expected": beside}
    for where, line in lines:
        try:
            answer = _answer(by_role(line, columns), where)
        except SampleError as error:
            raise DataError(f"{where}: {error}") from error
        if answer is None:
            without += 1
        else:
            found.append(Answered(line, answer, where))
    if not found:
        right = ", or ".join(columns[role] for role in ("expected", "references") if role in columns)
        lacks = f"none of its {without:,} lines has an expected answer ({right or 'expected, or references'})"
        why = lacks if without else "empty"
        raise DataError(f"{path}: {why}")
    return found, without


def _lines(path: Path, columns: Mapping[str, str], *, may_be_cut: bool) -> Iterator[tuple[str, Line]]:
    from kosmos.data.sources.delimited import SUFFIXES

    if path.suffix.lower() in SUFFIXES:
        yield from _rows(path, columns)
        return
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, text in enumerate(file, start=1):
                if not text.strip():
                    continue
                where = f"{path}:{number}"
                try:
                    line = json.loads(text)
                except ValueError as error:
                    if may_be_cut and not text.endswith("\n"):
                        return
                    raise DataError(f"{where}: expected a line of JSON ({error})") from error
                if not isinstance(line, dict):
                    raise DataError(f"{where}: expected an object with answer and expected, got {text.strip()[:60]}")
                yield where, line
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); give a file of lines of answers") from error


def _rows(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[str, Line]]:
    """Of a table. An answer that is empty there is one in which nothing was written."""
    from kosmos.data.sources.delimited import index_delimited
    from kosmos.data.sources.empty_rows import empty_rows

    table = index_delimited(path)
    for line in empty_rows(table):
        say(f"warning: {line}", file=sys.stderr)
    of_answers, lists = (columns.get("answer"), *ANSWERS), (columns.get("references"), RIGHT[-1])
    table = replace(table, nested=tuple(name for name in table.names if name in lists))
    for number in range(len(table)):
        where = table.origin(number)
        try:
            row = table.row(number)
        except SampleError as error:
            raise DataError(f"{where}: {error}") from error
        told = {name: "" if value is None and name in of_answers else value for name, value in row.items()}
        yield (
            where,
            {name: _written(value, WRITTEN[name]) if name in WRITTEN else value for name, value in told.items()},
        )


def _written(value: Any, begin: str) -> Any:
    """A list or an object that a table has as a text, in JSON or as Python shows it; any other text as it is."""
    if not isinstance(value, str) or not value.strip().startswith(begin):
        return value
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return read(value.strip())
    return value


def is_right(one: Answered, key: str) -> bool | None:
    """What a line says at a key of whether its answer is right, in a table in words; None where it does not say.

    Raises:
        DataError: it is neither true nor false.
    """
    said = one.line.get(key)
    if said is None:
        return None
    plain = str(said).strip().lower()
    if plain in YES or plain in NO:
        return plain in YES
    raise DataError(f"{one.where}: {key}: expected true or false, got {said!r:.60}")


def _answer(line: Line, where: str) -> Generated | None:
    """None where there is no right answer. Raises SampleError where something is no text."""
    from kosmos.evaluate.answer import Generated
    from kosmos.evaluate.references import all_right

    key = next((name for name in ANSWERS if name in line), None)
    if key is None:
        keys = ", ".join(map(str, line)) or "none"
        raise SampleError(
            f"no answer; expected the keys answer, and expected or references, got {keys}; name others ({SUCH_AS})"
        )
    answer = _text(line[key], key)
    first, *more = [texts for name in RIGHT if (texts := _texts(line.get(name), name))] or [[]]
    if not first:
        return None
    others = [text for texts in more for text in texts]
    there = {*map(str.strip, others)}  # what is expected is one of the references, where lines have both
    references = all_right(first[0], [*(text for text in first if text.strip() not in there), *others])
    document, ended = line.get("document", where), line.get("ended", "")
    return Generated(str(document), first[0], answer, ended=str(ended), references=references)


def _texts(value: Any, key: str) -> list[str]:
    """One right answer or a list of them; none of null. Raises SampleError where one is no text and no number."""
    if value is None:
        return []
    if isinstance(value, list):
        return [_text(one, f"{key}[{number}]") for number, one in enumerate(value)]
    return [_text(value, key)]


def _text(value: Any, key: str) -> str:
    """A number is a text, as it is in data."""
    from kosmos.data.sources.columns import text_value

    if not isinstance(value, str | int | float):
        raise SampleError(f"{key}: expected text, got {value!r:.60}")
    return text_value(value, key)
