"""Rows of questions that offer several answers, as benchmarks have them.

- The question is in ``question``, ``query``, ``prompt`` or ``ctx``, behind what is in ``context``, ``passage``,
  ``article``, ``support`` and ``text``. In its place may be ``messages``, ``conversations`` or ``segments``.
- ``choices``, ``options`` or ``endings`` is what is offered: a list of texts, or an object of two lists, ``text`` and
  ``label``.
- ``gold``, ``answer``, ``answer_index``, ``answerKey``, ``label`` or ``target`` is the right one: its number from 0 on,
  its label, its letter from A on, or its text. Tried are a label, a number, a text that is offered, digits, a letter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kosmos.data.document import Media, Segment, StoredMedia
from kosmos.data.sources.columns import Row, is_empty, kind_of, text_value
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.errors import DataError, SampleError
from kosmos.names import listed

ASKS = ("question", "query", "prompt", "ctx")
BEFORE = ("context", "passage", "article", "support", "text")
BESIDE = ("system", "history")
"""What a question may not have beside it."""
WHOLE = ("messages", "conversations", "segments")
OFFERS = ("choices", "options", "endings")
RIGHT = ("gold", "answer", "answer_index", "answerKey", "label", "target")


class Offer(NamedTuple):
    """What a row offers."""

    answers: tuple[str, ...]
    right: int


@dataclass(frozen=True)
class ChoiceLayout(DefaultLayout):
    """The question of a row, with its media: what is offered stands beside it."""

    asked: bool = True

    def check(self, columns: Collection[str]) -> None:
        for what, names in (("what is offered", OFFERS), ("which answer is right", RIGHT)):
            if not any(name in columns for name in names):
                raise DataError(f"no column says {what} ({listed(names)}); there are {listed(sorted(columns))}")
        if not any(name in columns for name in (*ASKS, *WHOLE)):
            asks = listed((*ASKS, *WHOLE))
            raise DataError(f"no column holds the question ({asks}); there are {listed(sorted(columns))}")

    def used(self, columns: Collection[str]) -> set[str]:
        return super().used(columns) | {name for name in (*BEFORE, *ASKS, *OFFERS, *RIGHT) if name in columns}

    def nested(self, columns: Collection[str]) -> set[str]:
        return super().nested(columns) | {name for name in OFFERS if name in columns}

    def segments(self, row: Row, root: Path) -> tuple[Segment, ...]:
        others = {name: value for name, value in row.items() if name not in (*BEFORE, *ASKS, *OFFERS, *RIGHT)}
        there = [name for name in (*BEFORE, *ASKS) if not is_empty(row.get(name))]
        whole = next((name for name in WHOLE if not is_empty(row.get(name))), None)
        beside = there if whole is not None else [name for name in BESIDE if not is_empty(row.get(name))]
        if beside:
            raise SampleError(f"{listed(beside)} beside {whole or 'a question'}: write all of it as messages")
        if whole is not None:
            return super().segments(others, root)
        if not any(name in ASKS for name in there):
            raise SampleError(f"holds no question ({listed(ASKS)})")
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
    name = next((name for name in OFFERS if not is_empty(row.get(name))), None)
    if name is None:
        raise SampleError(f"offers nothing ({listed(OFFERS)})")
    found, labels = row[name], None
    if isinstance(row[name], Mapping):
        found, labels = row[name].get("text"), row[name].get("label")
    elif isinstance(found, list | tuple) and found and all(isinstance(one, Mapping) and "text" in one for one in found):
        found, labels = [one["text"] for one in found], [one.get("label") for one in found]
    if not isinstance(found, list | tuple | np.ndarray) or len(found) < 2:
        raise SampleError(f"{name}: expected a list of two answers or more, got {kind_of(found)}")
    answers = tuple(text_value(answer, f"{name}[{number}]") for number, answer in enumerate(found))
    if not all(answers):
        raise SampleError(f"{name}[{answers.index('')}] is empty")
    return Offer(answers, _right(row, answers, None if labels is None else [str(label) for label in labels]))


def _right(row: Row, answers: Sequence[str], labels: Sequence[str] | None) -> int:
    name = next((name for name in RIGHT if not is_empty(row.get(name))), None)
    if name is None:
        raise SampleError(f"none of the answers is said to be right ({listed(RIGHT)})")
    said: Any = row[name]
    number = _number(said, answers, labels)
    if number is None or not 0 <= number < len(answers):
        raise SampleError(f"{name}: {said!r:.60} is none of its {len(answers)} answers")
    return number


def _number(said: Any, answers: Sequence[str], labels: Sequence[str] | None) -> int | None:
    if isinstance(said, bool):
        return None
    text = str(said).strip()
    if labels is not None and text in labels:
        return labels.index(text)
    if isinstance(said, int | np.integer) or (isinstance(said, float) and said.is_integer()):
        return int(said)
    if text in answers:
        return answers.index(text)
    if text.isdecimal():
        return int(text)
    return ord(text.upper()) - ord("A") if len(text) == 1 and text.isascii() and text.isalpha() else None
