"""Scores told apart by a column of the rows, such as a class, a speaker or a language. No torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kosmos.data.asked import text_answer_of
from kosmos.data.document import Source
from kosmos.data.foreign import calling
from kosmos.data.ledger_codes import document_of
from kosmos.data.sources.source import RowSource
from kosmos.data.spread import spread
from kosmos.errors import SampleError

if TYPE_CHECKING:
    from kosmos.data.batch import DocumentInfo
    from kosmos.evaluate.answer import Generated
    from kosmos.evaluate.choices import Chosen

T = TypeVar("T")
EXPECTED = "expected"
"""In place of a column: the right answer itself, of a document, of a question, or of a line of answers."""
ABSENT = "(none)"
"""What rows without a value have."""
LOOKED_AT = 64
"""Rows of a source among which one that has the column is looked for."""
SHARES = ("exact_match", "accuracy", "accuracy_by_length")
"""Figures whose mean over the values says something: of classes it is the balanced accuracy."""
_NO_COLUMN = "no column"


def called(value: Any) -> str:
    """What a value of a column is called."""
    if value is None:
        return ABSENT
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def mean_over_values(by_value: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Of figures by value the mean of each that is a share, in which each value counts the same, without ``ABSENT``."""
    found, there = {}, [figures for value, figures in by_value.items() if value != ABSENT]
    for name in SHARES:
        shares = [figures[name] for figures in there if figures.get(name) is not None]
        if shares:
            found[name] = sum(shares) / len(shares)
    return found


class Column:
    """A column by which scores are told apart.

    Args:
        name: that of the rows, or a path in it such as ``meta.speaker``; ``EXPECTED`` is the right answer.
        even: how documents are chosen, as of ``spread``.
    """

    def __init__(self, name: str, *, even: bool = False) -> None:
        self.name, self.even = name, even

    def lack(self, source: Source) -> str | None:
        """Why no row of the source has a value of it, as a line; None where some may have.

        Raises:
            ConfigError: the name is no path.
        """
        if self.name == EXPECTED:
            return None
        if not isinstance(source, RowSource):
            return f"{source.name}: its documents are in no rows that have columns; {EXPECTED} is there for any data"
        why = ""
        for index in spread(len(source), LOOKED_AT).tolist():
            try:
                source.value(index, self.name)
                return None
            except SampleError as error:  # of a broken row, it says nothing of the others
                why = str(error) if not why or _NO_COLUMN in str(error) else why
        return f"{source.name}: {why}" if why else None

    def of_row(self, source: Source, index: int) -> str:
        """What document ``index`` has there."""
        try:
            if self.name == EXPECTED:
                with calling(source, "document"):
                    parts = text_answer_of(source.document(index))
                return ABSENT if parts is None else called(parts[1])
            if isinstance(source, RowSource):
                return called(source.value(index, self.name))
        except SampleError:
            pass
        return ABSENT

    def of_origins(self, source: Source, max_documents: int, name: Callable[[str], str] = str) -> Callable[[str], str]:
        """What a document of this origin has, of those that are scored.

        Args:
            name: of an origin, where it is not called by that.
        """
        rows = spread(len(source), max_documents, even=self.even).tolist()
        if isinstance(source, RowSource):
            numbers = {name(source.origin(row)): row for row in rows}
        else:
            numbers = {name(origin): row for row in rows if (origin := _origin(source, row)) is not None}

        def of(origin: str) -> str:
            row = numbers.get(origin, numbers.get(document_of(origin)))
            return ABSENT if row is None else self.of_row(source, row)

        return of

    def of_documents(self, sources: Sequence[Source], max_documents: int) -> Callable[[DocumentInfo], str | None]:
        """For ``score``, of which these are the arguments: None of sources that lack the column."""
        of = {one.name: self.of_origins(one, max_documents) for one in sources if self.lack(one) is None}

        def value(document: DocumentInfo) -> str | None:
            found = of.get(document.source)
            return None if found is None else found(document.origin)

        return value

    def of_answers(self, source: Source, answers: Sequence[Generated], max_documents: int) -> list[str]:
        """What each document has that was answered, by this call or by one that was interrupted."""
        if self.name == EXPECTED:
            return [called(answer.expected) for answer in answers]
        if all(answer.row >= 0 for answer in answers):
            return [self.of_row(source, answer.row) for answer in answers]
        folder = source.folder if isinstance(source, RowSource) else ""
        of = self.of_origins(source, max_documents, lambda origin: origin.removeprefix(f"{folder}/"))
        return [of(answer.origin) for answer in answers]

    def of_questions(self, questions: Sequence[Chosen]) -> list[str]:
        """What each question has."""
        if self.name == EXPECTED:
            return [called(question.answers[question.right]) for question in questions]
        return [self.of_row(one.source.source, one.source.rows[one.place]) for one in questions]


def grouped(things: Sequence[T], values: Sequence[str]) -> dict[str, list[T]]:
    """The things of each value, in the order of ``ranked``."""
    found: dict[str, list[T]] = {}
    for thing, value in zip(things, values, strict=True):
        found.setdefault(value, []).append(thing)
    return {value: found[value] for value in ranked({value: len(group) for value, group in found.items()})}


def ranked(counts: Mapping[str, int]) -> list[str]:
    """The most frequent value first; but where all are numbers, such as lengths, by their size."""
    try:
        return sorted(counts, key=float)
    except ValueError:
        return sorted(counts, key=lambda value: (-counts[value], value))


def _origin(source: Source, row: int) -> str | None:
    try:
        with calling(source, "document"):
            return source.document(row).origin
    except SampleError:
        return None
