"""Rows of questions that offer several answers, as benchmarks have them.

- The question is in ``question``, ``query``, ``prompt`` or ``ctx``, behind what is in ``hint``, ``context``,
  ``passage``, ``article``, ``support`` and ``text``. In its place may be ``messages``, ``conversations`` or
  ``segments``. A row with media need ask nothing: what they are is among what is offered.
- ``choices``, ``options``, ``endings`` or ``candidates`` is what is offered: a list of texts, an object of two lists,
  ``text`` and ``label``, or an object of texts by their labels. In its place may be columns of an answer each: ``A``,
  ``B`` and so on, or ``option 0``, ``a0`` and their like (``forms.SERIES``).
- ``gold``, ``answer``, ``answer_index``, ``answerKey``, ``label``, ``target`` or ``truth`` is the right one: its number
  from 0 on, its label, its letter from A on, or its text. Tried are a label, a number, a text that is offered, digits,
  a letter, a letter in brackets or before a dot, and a text but for its case and the space at its ends.

``columns`` of a file of questions names those that are called otherwise (``choice_columns``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kosmos.data.document import Segment
from kosmos.data.sources.choice_columns import ASKS, OFFERED, RIGHT, WHOLE, ChoiceColumns, said
from kosmos.data.sources.columns import Row, is_empty, kind_of, require_column, text_value, top_column
from kosmos.data.sources.file_column import FILE_NAME
from kosmos.data.sources.forms import LETTERS
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.data.sources.listed_texts import listed_text
from kosmos.data.sources.numbered import held_numbers, in_places, tag_of
from kosmos.data.sources.offering import INDEX, LETTER, TEXT, Offering
from kosmos.data.sources.right_of_file import NUMBER, Ways
from kosmos.data.sources.since import lacks
from kosmos.data.sources.splits import field_of
from kosmos.errors import DataError, SampleError
from kosmos.names import listed

BESIDE = ("system", "history")
"""What a question may not have beside it."""
_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\]]?[.:]?")
_LETTER_AND_TEXT = re.compile(r"[(\[]?([A-Za-z])[)\].:]+\s*(.+)", re.DOTALL)
CALLED = ChoiceColumns()
"""Columns that are called by their roles."""
AS_IT_IS = Offering()
"""Rows that say all themselves."""
NAMED, LONGEST = 6, 30
"""Answers that an error names, and most characters of each."""


class Offer(NamedTuple):
    """What a row offers."""

    answers: tuple[str, ...]
    right: int


@dataclass(frozen=True)
class ChoiceLayout(DefaultLayout):
    """The question of a row, with its media: what is offered stands beside it."""

    asked: bool = True
    own: ChoiceColumns = field(default_factory=ChoiceColumns)
    """The columns of the question; those of its media are in ``columns``."""
    by: Offering = AS_IT_IS
    """What all rows have in common."""

    def check(self, columns: Collection[str]) -> None:
        for role, path in {**self.columns, **self.own.named}.items():
            require_column(path, columns, field_of(role))
        there = f"there are {listed(sorted(columns))}"
        if not self.by.choices and not _any_of(self.own.offers, columns) and not self.own.each(columns).columns:
            raise DataError(
                f"no column says what is offered ({OFFERED}); {there}{_name_it('choices')}{_one_each(columns)}"
            )
        if not _any_of(self.own.right, columns):
            raise DataError(f"no column says which answer is right ({listed(RIGHT)}); {there}{_name_it('answer')}")
        whole = (self.column(role) for role in WHOLE)
        if not _any_of((*self.own.asks, *whole, FILE_NAME), columns) and not self.media_tops(columns):
            asks = listed((*ASKS, *WHOLE))
            raise DataError(f"no column holds the question ({asks}); {there}{_name_it('question')}")

    def used(self, columns: Collection[str]) -> set[str]:
        return super().used(columns) | self.own.all(columns)

    def nested(self, columns: Collection[str]) -> set[str]:
        return super().nested(columns) | self.own.nested(columns)

    def references(self, row: Row) -> tuple[str, ...]:
        return ()  # what is right is among what is offered

    def segments(self, row: Row, root: Path) -> tuple[Segment, ...]:
        own = self.own.all(row) - {top_column(path, row) for path in self.columns.values()}
        others = {name: value for name, value in row.items() if name not in own}
        there = [name for name in (*self.own.before, *self.own.asks) if not is_empty(said(row, name))]
        whole = next((name for name in map(self.column, WHOLE) if not is_empty(said(row, name))), None)
        beside = there if whole is not None else [name for name in BESIDE if not is_empty(row.get(name))]
        if beside:
            raise SampleError(f"{listed(beside)} beside {whole or 'a question'}: write all of it as messages")
        if whole is not None:
            return super().segments(others, root)
        if not any(name in self.own.asks for name in there):
            if there or not self.needs(others):
                behind = f"; {listed(there)} would stand before one, and is none" if there else ""
                behind += f"; if {there[-1]} asks, name it (columns: {{question: {there[-1]}}})" if there else ""
                raise SampleError(f"holds no question ({listed(self.own.asks)}){behind}")
            return super().segments({**others, "text": None}, root)
        question = "\n".join(text_value(said(row, name), name) for name in there)
        return in_places(super().segments({**others, "text": question}, root), self._numbers(row))

    def check_answers(self, row: Row, answers: Sequence[str]) -> None:
        """Raises SampleError where an answer is the place of one of the row's media, such as ``<image 2>``."""
        found = filter(None, map(tag_of(self.modalities).search, answers)) if self.modalities else iter(())
        tag = next((tag for tag in found if tag[2] is not None), None)
        if tag is not None and tag[1] in self.needs(row):
            raise SampleError(
                f"offers {tag[0].strip()}: of a medium there is no likelihood; write all that is offered into the "
                "question, and letters as what is offered"
            )

    def _numbers(self, row: Row) -> dict[str, list[int]]:
        """Modality to the numbers of its media, of those that the row has a column for."""
        held = self.media_of(row)
        names = {m: held.get(m, next(iter(self._tops([m], row)), "")) for m in self.modalities}
        paths = {m: self.columns.get(m, name) for m, name in names.items() if name in row}
        return {m: held_numbers(said(row, path), path, m) for m, path in paths.items()}


def _any_of(paths: Collection[str], columns: Collection[str]) -> bool:
    return any(top_column(path, columns) in columns for path in paths)


def _name_it(role: str) -> str:
    return f"; name it (columns: {{{role}: COLUMN}})"


def _one_each(columns: Collection[str]) -> str:
    """How columns of an answer each are named, with those of the table that are called as if they were such."""
    firsts = (name for name in sorted(columns) if name[-1:] in tuple("1Aa") and _following(name, 1) in columns)
    found = ([_following(first, n) for n in range(len(LETTERS))] for first in firsts)
    series = ([*takewhile(lambda name: name in columns, names)] for names in found)
    there = max(series, key=len, default=["COLUMN", "COLUMN"])
    named = ", ".join(f"{letter}: {name}" for letter, name in zip(LETTERS, there, strict=False))
    return f", or one each (columns: {{{named}}}), where a number that says which is right counts them from 0"


def _following(name: str, steps: int) -> str:
    """The name of the column ``steps`` behind one whose name ends with 1 or A."""
    return f"{name[:-1]}{1 + steps}" if name[-1] == "1" else f"{name[:-1]}{chr(ord(name[-1]) + steps)}"


def read_offer(row: Row, own: ChoiceColumns = CALLED, by: Offering = AS_IT_IS) -> Offer:
    """As ``read_with_ways``, of a row by itself: where it can be read in two ways, a text goes first."""
    return read_with_ways(row, own, by)[0]


def read_with_ways(row: Row, own: ChoiceColumns = CALLED, by: Offering = AS_IT_IS) -> tuple[Offer, Ways]:
    """What a row offers, and in which ways it says which is right.

    Args:
        own: its columns.
        by: what all rows of its file have in common.

    Raises:
        SampleError: it offers fewer than two answers, or none of them is said to be the right one.
    """
    offered = _of_all(by.choices) if by.choices else _offered(row, own)
    answers = tuple(text_value(answer, where) for where, answer in zip(offered.where, offered.answers, strict=True))
    if not all(answers):
        raise SampleError(f"{offered.where[answers.index('')]} is empty")
    name, told = _told(row, own.right)
    ways = _ways(told, answers, offered)
    number = _number(told, answers, offered) if by.answer_is is None else _by(told, by.answer_is, answers, offered)
    if number is None or not 0 <= number < len(answers):
        short = (repr(answer if len(answer) <= LONGEST else f"{answer[: LONGEST - 2]}..") for answer in answers)
        none_of = f"{told!r:.60} is none of its {len(answers)} answers: {listed(short, at_most=NAMED)}"
        raise SampleError(f"{name}: {none_of}{_numbers_nothing(offered, told)}")
    return Offer(answers, number), {} if by.answer_is else ways


class _Offered(NamedTuple):
    """Two answers or more."""

    answers: Sequence[Any]
    where: Sequence[str]
    """What errors call each of them."""
    labels: Sequence[str] | None
    gap: str = ""
    """The first that is left out in front of another: numbers may count it, or not."""


def _offered(row: Row, own: ChoiceColumns) -> _Offered:
    name = next((name for name in own.offers if not is_empty(said(row, name))), None)
    if name is None or (kind_of(said(row, name)) == "an empty list" and own.each(row).columns):
        return _of_each(row, own)
    found, labels = listed_text(said(row, name)), None
    if isinstance(found, Mapping) and "text" in found:
        found, labels = found["text"], found.get("label")
    elif isinstance(found, Mapping):
        there = {str(label): answer for label, answer in found.items() if not _is_missing(answer)}
        if len(there) < 2:
            raise SampleError(f"{name}: expected an object of two answers or more by their labels, got {len(there)}")
        where = [f"{name}.{label}" for label in there]
        before_last = takewhile(lambda label: label != list(there)[-1], map(str, found))
        gap = next((f"{name}.{label}" for label in before_last if label not in there), "")
        return _Offered(list(there.values()), where, list(there), gap)
    elif isinstance(found, list | tuple) and found and all(isinstance(one, Mapping) and "text" in one for one in found):
        found, labels = [one["text"] for one in found], [one.get("label") for one in found]
    if not isinstance(found, list | tuple | np.ndarray) or len(found) < 2:
        is_one = isinstance(found, list | tuple | np.ndarray) and len(found) == 1
        got = "a list of 1" if is_one else kind_of(found)
        told = f" ({found!r:.60})" if isinstance(found, str) else ""
        raise SampleError(f"{name}: expected a list of two answers or more, got {got}{told}")
    where = [f"{name}[{number}]" for number in range(len(found))]
    return _Offered(list(found), where, None if labels is None else [str(label) for label in labels])


def _of_each(row: Row, own: ChoiceColumns) -> _Offered:
    """Of a column for each answer. Those that a question has less than others are null."""
    each = own.each(row)
    answers = [said(row, name) for name in each.columns]
    there = [n for n, answer in enumerate(answers) if not _is_missing(answer) and not is_empty(answer)]
    if not there:
        raise SampleError(f"offers nothing ({own.what_offers})")
    names = [each.columns[n] for n in there]
    if len(there) < 2:
        raise SampleError(f"{listed(each.columns)}: expected two answers or more, got {names[0]} alone")
    gap = next((each.columns[n] for n in range(there[-1]) if n not in there), "")
    return _Offered([answers[n] for n in there], names, [each.labels[n] for n in there], gap)


def _is_missing(answer: Any) -> bool:
    return kind_of(answer) in ("null", "NaN")


def _told(row: Row, names: Sequence[str]) -> tuple[str, Any]:
    """What says which answer is right, and its column."""
    name = next((name for name in names if not is_empty(said(row, name))), None)
    if name is None:
        raise SampleError(f"none of the answers is said to be right ({listed(names)})")
    return name, said(row, name)


def _ways(told: Any, answers: Sequence[str], offered: _Offered) -> Ways:
    """The ways in which all of what is said is an answer's number, its letter or its text; none where it is a label."""
    text = str(told).strip()
    if isinstance(told, bool) or (offered.labels is not None and text in offered.labels):
        return {}
    found: dict[str, int] = {}
    if not isinstance(told, str):
        ways = {NUMBER: _by(told, INDEX, answers, offered), TEXT: answers.index(text) if text in answers else None}
        return {way: number for way, number in ways.items() if number is not None}
    for way in (INDEX, TEXT, *([LETTER] if len(text) == 1 else [])):
        if way != TEXT or text in answers:
            number = _by(told, way, answers, offered)
            found |= {} if number is None else {way: number}
    return found


def _by(told: Any, way: str, answers: Sequence[str], offered: _Offered) -> int | None:
    """The number of the right answer where it is known what says it; None where that says none."""
    text = str(told).strip()
    number = None
    if way == INDEX and not isinstance(told, bool) and not offered.gap:
        is_whole = isinstance(told, int | np.integer) or (isinstance(told, float) and told.is_integer())
        number = int(told) if is_whole else int(text) if text.isdecimal() and len(text) < 7 else None
    elif way == LETTER and (letter := _LETTER.fullmatch(text)):
        number = _place_of(letter[1], offered)
    elif way == TEXT:
        alike = [number for number, answer in enumerate(answers) if _plain(answer) == _plain(text)]
        number = answers.index(text) if text in answers else alike[0] if len(alike) == 1 else None
    return number if number is not None and 0 <= number < len(answers) else None


def _of_all(choices: Sequence[str]) -> _Offered:
    """Of what every row offers."""
    return _Offered(choices, [f"options.choices[{number}]" for number in range(len(choices))], None)


def _numbers_nothing(offered: _Offered, told: Any) -> str:
    """Why a number or a letter says nothing of answers of which one between others is missing."""
    if not offered.gap or not (str(told).strip().isdecimal() or _LETTER.fullmatch(str(told).strip())):
        return ""
    return (
        f"; {offered.gap} is missing, and a place may count it or not: give the label ({listed(offered.labels or ())})"
    )


def _number(said: Any, answers: Sequence[str], offered: _Offered) -> int | None:
    if isinstance(said, bool):
        return None
    text, labels = str(said).strip(), offered.labels
    if labels is not None and text in labels:
        return labels.index(text)
    if labels is not None and all(label.isdecimal() for label in labels) and text.isdecimal():
        return None  # a label that is not there, and no place
    if not offered.gap and (isinstance(said, int | np.integer) or (isinstance(said, float) and said.is_integer())):
        is_text = not 0 <= said < len(answers) and text in answers and not lacks("questions")
        return answers.index(text) if is_text else int(said)
    if text in answers:
        return answers.index(text)
    if text.isdecimal() and len(text) < len("1000000") and not offered.gap:
        return int(text)
    alike = [number for number, answer in enumerate(answers) if _plain(answer) == _plain(text)]
    letter = _LETTER.fullmatch(text)
    number = _place_of(letter[1], offered) if letter and (len(text) == 1 or not alike) else None
    if number is not None and number < len(answers):
        return number
    if both := _LETTER_AND_TEXT.fullmatch(text):
        number = _place_of(both[1], offered)
        if number is not None and number < len(answers) and _plain(answers[number]) == _plain(both[2]):
            return number
    return alike[0] if len(alike) == 1 else None


def _plain(text: str) -> str:
    return text.strip().casefold()


def _place_of(letter: str, offered: _Offered) -> int | None:
    """Number of an answer by its letter: from A on, unless labels are letters themselves, or numbers with gaps."""
    labels = offered.labels
    if labels is not None and any(len(label) == 1 and label.isalpha() for label in labels):
        found = [number for number, label in enumerate(labels) if _plain(label) == _plain(letter)]
        return found[0] if len(found) == 1 else None
    if offered.gap:
        return None  # nobody knows whether letters count what is not offered
    if labels is not None and all(map(str.isdecimal, labels)):
        numbers = [*map(int, labels)]
        if numbers != [*range(len(numbers))] and numbers != [*range(1, len(numbers) + 1)]:
            return None
    return ord(letter.upper()) - ord("A")
