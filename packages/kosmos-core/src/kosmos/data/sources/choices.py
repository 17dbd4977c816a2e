"""Rows of questions that offer several answers, as benchmarks have them.

- The question is in ``question``, ``query``, ``prompt`` or ``ctx``, behind what is in ``context``, ``passage``,
  ``article``, ``support`` and ``text``. In its place may be ``messages``, ``conversations`` or ``segments``. A row with
  media need ask nothing: what they are is among what is offered.
- ``choices``, ``options`` or ``endings`` is what is offered: a list of texts, an object of two lists, ``text`` and
  ``label``, or an object of texts by their labels. In its place may be columns ``A``, ``B`` and so on, one each.
- ``gold``, ``answer``, ``answer_index``, ``answerKey``, ``label`` or ``target`` is the right one: its number from 0 on,
  its label, its letter from A on, or its text. Tried are a label, a number, a text that is offered, digits, a letter,
  a letter in brackets or before a dot, and a text but for its case and the space at its ends.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kosmos.data.document import Media, Segment, StoredMedia
from kosmos.data.sources.columns import Row, is_empty, kind_of, text_value
from kosmos.data.sources.forms import LETTERS
from kosmos.data.sources.layouts import FILE_NAME, DefaultLayout
from kosmos.errors import DataError, SampleError
from kosmos.names import listed

ASKS = ("question", "query", "prompt", "ctx")
BEFORE = ("context", "passage", "article", "support", "text")
BESIDE = ("system", "history")
"""What a question may not have beside it."""
WHOLE = ("messages", "conversations", "segments")
OFFERS = ("choices", "options", "endings")
RIGHT = ("gold", "answer", "answer_index", "answerKey", "label", "target")
OFFERED = f"{listed(OFFERS)}, or A, B and so on"
_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\]]?[.:]?")
_LETTER_AND_TEXT = re.compile(r"[(\[]?([A-Za-z])[)\].:]+\s*(.+)", re.DOTALL)
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

    def check(self, columns: Collection[str]) -> None:
        there = f"there are {listed(sorted(columns))}"
        if not any(name in columns for name in OFFERS) and not _letters(columns):
            raise DataError(f"no column says what is offered ({OFFERED}); {there}")
        if not any(name in columns for name in RIGHT):
            raise DataError(f"no column says which answer is right ({listed(RIGHT)}); {there}")
        if not any(name in columns for name in (*ASKS, *WHOLE, FILE_NAME)) and not self._media_tops(columns):
            asks = listed((*ASKS, *WHOLE))
            raise DataError(f"no column holds the question ({asks}); {there}")

    def used(self, columns: Collection[str]) -> set[str]:
        own = {name for name in (*BEFORE, *ASKS, *OFFERS, *RIGHT) if name in columns}
        return super().used(columns) | own | set(_letters(columns))

    def nested(self, columns: Collection[str]) -> set[str]:
        return super().nested(columns) | {name for name in OFFERS if name in columns}

    def references(self, row: Row) -> tuple[str, ...]:
        return ()  # what is right is among what is offered

    def segments(self, row: Row, root: Path) -> tuple[Segment, ...]:
        own = (*BEFORE, *ASKS, *OFFERS, *RIGHT, *_letters(row))
        others = {name: value for name, value in row.items() if name not in own}
        there = [name for name in (*BEFORE, *ASKS) if not is_empty(row.get(name))]
        whole = next((name for name in WHOLE if not is_empty(row.get(name))), None)
        beside = there if whole is not None else [name for name in BESIDE if not is_empty(row.get(name))]
        if beside:
            raise SampleError(f"{listed(beside)} beside {whole or 'a question'}: write all of it as messages")
        if whole is not None:
            return super().segments(others, root)
        if not any(name in ASKS for name in there):
            if there or not self.needs(others):
                behind = f"; {listed(there)} would stand before one, and is none" if there else ""
                raise SampleError(f"holds no question ({listed(ASKS)}){behind}")
            return super().segments({**others, "text": None}, root)
        question = "\n".join(text_value(row[name], name) for name in there)
        segments = super().segments({**others, "text": question}, root)
        placed = (f"<{part.modality}>" for part in segments if isinstance(part, Media | StoredMedia))
        if mark := next((mark for mark in placed if mark in question), None):
            raise SampleError(f"{mark} in a question stays text; write it as messages, in which media have a place")
        return segments


def read_offer(row: Row) -> Offer:
    """What a row offers.

    Raises:
        SampleError: it offers fewer than two answers, or none of them is said to be the right one.
    """
    offered = _offered(row)
    answers = tuple(text_value(answer, where) for where, answer in zip(offered.where, offered.answers, strict=True))
    if not all(answers):
        raise SampleError(f"{offered.where[answers.index('')]} is empty")
    return Offer(answers, _right(row, answers, offered.labels))


class _Offered(NamedTuple):
    """Two answers or more."""

    answers: Sequence[Any]
    where: Sequence[str]
    """What errors call each of them."""
    labels: Sequence[str] | None


def _offered(row: Row) -> _Offered:
    name = next((name for name in OFFERS if not is_empty(row.get(name))), None)
    if name is None or (kind_of(row[name]) == "an empty list" and _letters(row)):
        return _of_letters(row)
    found, labels = row[name], None
    if isinstance(found, Mapping) and "text" in found:
        found, labels = found["text"], found.get("label")
    elif isinstance(found, Mapping):
        there = {str(label): answer for label, answer in found.items() if not _is_missing(answer)}
        if len(there) < 2:
            raise SampleError(f"{name}: expected an object of two answers or more by their labels, got {len(there)}")
        return _Offered(list(there.values()), [f"{name}.{label}" for label in there], list(there))
    elif isinstance(found, list | tuple) and found and all(isinstance(one, Mapping) and "text" in one for one in found):
        found, labels = [one["text"] for one in found], [one.get("label") for one in found]
    if not isinstance(found, list | tuple | np.ndarray) or len(found) < 2:
        is_one = isinstance(found, list | tuple | np.ndarray) and len(found) == 1
        got = "a list of 1" if is_one else kind_of(found)
        raise SampleError(f"{name}: expected a list of two answers or more, got {got}")
    where = [f"{name}[{number}]" for number in range(len(found))]
    return _Offered(list(found), where, None if labels is None else [str(label) for label in labels])


def _of_letters(row: Row) -> _Offered:
    """Of a column for each answer. Those that a question has less than others are null."""
    letters = _letters(row)
    there = [letter for letter in letters if not _is_missing(row[letter]) and not is_empty(row[letter])]
    if not there:
        raise SampleError(f"offers nothing ({OFFERED})")
    if len(there) < 2:
        raise SampleError(f"{listed(letters)}: expected two answers or more, got {there[0]} alone")
    return _Offered([row[letter] for letter in there], there, there)


def _letters(columns: Collection[str]) -> list[str]:
    """Columns that hold an answer each; none where A and B are not among them."""
    found = [letter for letter in LETTERS if letter in columns]
    return found if found[:2] == ["A", "B"] else []


def _is_missing(answer: Any) -> bool:
    return kind_of(answer) in ("null", "NaN")


def _right(row: Row, answers: Sequence[str], labels: Sequence[str] | None) -> int:
    name = next((name for name in RIGHT if not is_empty(row.get(name))), None)
    if name is None:
        raise SampleError(f"none of the answers is said to be right ({listed(RIGHT)})")
    said: Any = row[name]
    number = _number(said, answers, labels)
    if number is None or not 0 <= number < len(answers):
        short = (repr(answer if len(answer) <= LONGEST else f"{answer[: LONGEST - 2]}..") for answer in answers)
        raise SampleError(f"{name}: {said!r:.60} is none of its {len(answers)} answers: {listed(short, at_most=NAMED)}")
    return number


def _number(said: Any, answers: Sequence[str], labels: Sequence[str] | None) -> int | None:
    if isinstance(said, bool):
        return None
    text = str(said).strip()
    if labels is not None and text in labels:
        return labels.index(text)
    if labels is not None and all(label.isdecimal() for label in labels) and text.isdecimal():
        return None  # a label that is not there, and no place
    if isinstance(said, int | np.integer) or (isinstance(said, float) and said.is_integer()):
        return int(said)
    if text in answers:
        return answers.index(text)
    if text.isdecimal() and len(text) < len("1000000"):
        return int(text)
    alike = [number for number, answer in enumerate(answers) if _plain(answer) == _plain(text)]
    letter = _LETTER.fullmatch(text)
    number = _place_of(letter[1], labels) if letter and (len(text) == 1 or not alike) else None
    if number is not None and number < len(answers):
        return number
    if both := _LETTER_AND_TEXT.fullmatch(text):
        number = _place_of(both[1], labels)
        if number is not None and number < len(answers) and _plain(answers[number]) == _plain(both[2]):
            return number
    return alike[0] if len(alike) == 1 else None


def _plain(text: str) -> str:
    return text.strip().casefold()


def _place_of(letter: str, labels: Sequence[str] | None) -> int | None:
    """Number of an answer by its letter: from A on, unless labels are letters themselves."""
    if labels is not None and any(len(label) == 1 and label.isalpha() for label in labels):
        found = [number for number, label in enumerate(labels) if _plain(label) == _plain(letter)]
        return found[0] if len(found) == 1 else None
    return ord(letter.upper()) - ord("A")
