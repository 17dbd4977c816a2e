"""Labels as a model learns them: each spelling is an answer of its own, and those that may be one are told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kosmos.data.answers import Answers, doubtful, told
from kosmos.data.document import Document, Media, Text


def few(texts: Sequence[str], *, asked: bool = True) -> dict[str, int]:
    answers = Answers()
    for text in texts:
        question = [Media("image", np.zeros((2, 2, 3), np.uint8)), Text("Is it?")] if asked else []
        answers.look(Document("x", (*question, Text(text, train=True))))
    return answers.few()


def test_few_answers_are_shown_with_their_counts() -> None:
    assert told(few(["yes", "no", "yes", "no ", "yes", "no", "no"])) == "yes (3), no (3), 'no ' (1)"
    assert told(few([" yes", " no", " yes", " no"])) == "yes (2), no (2)"


@pytest.mark.parametrize("texts", [[f"answer {n}" for n in range(20)], ["a long report " * 9] * 9, []])
def test_answers_that_are_no_labels_are_not_shown(texts: list[str]) -> None:
    assert few(texts) == {}
    assert few([f"{n}" for n in range(25)] * 3) == {}
    assert few(["no question"] * 9, asked=False) == {}


@pytest.mark.parametrize("two", [("none", "none "), ("none", "NONE"), ("0", "0.0"), (" no", " no ")])
def test_answers_that_may_be_one_are_told(two: tuple[str, str]) -> None:
    [line] = doubtful(few([*two] * 3))
    assert line.startswith("1 of the answers is written in several ways, such as ")


@pytest.mark.parametrize("text", ["nan", "NA", "N/A", "null"])
def test_what_tables_write_for_nothing_is_told(text: str) -> None:
    [line] = doubtful(few(["yes", "no", text] * 2))
    assert line.startswith(f"2 documents answer {text!r}, which is learned as any answer is")
    assert not [*doubtful(few(["yes", "no"] * 2))]
