"""Rows that offer several answers: what is offered, and which of them is right."""

from __future__ import annotations

from typing import Any

import pytest

from kosmos.commands.causes import incident_lines
from kosmos.data.quarantine import Incident
from kosmos.data.sources.choices import read_offer
from kosmos.errors import SampleError


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ({"gold": 1}, 1),
        ({"gold": "1"}, 1),
        ({"answer": "b"}, 1),
        ({"answer": "C"}, 2),
        ({"answer": "four"}, 0),
        ({"answer": "2"}, 2),
        ({"answer": 0, "label": 2}, 0),
        ({"choices": {"text": ["a", "b"], "label": ["2", "1"]}, "answerKey": "1"}, 1),
        ({"choices": ["2", "1"], "answer": "1"}, 1),
        ({"choices": ["2", "1"], "answer": 0}, 0),
        ({"label": 1.0}, 1),
        ({"choices": [{"text": "a", "label": "X"}, {"text": "b", "label": "Y"}], "answerKey": "Y"}, 1),
        ({"choices": {"A": "Tomato", "B": "Apple"}, "answer": "B"}, 1),
        ({"choices": {"A": "Tomato", "B": "Apple"}, "answer": "b"}, 1),
        ({"choices": {"B": "Tomato", "A": "Apple"}, "answer": "(A)"}, 1),
        ({"choices": {"A": "a", "B": None, "C": "c"}, "answer": "C"}, 1),
        ({"choices": {"1": "Tomato", "2": "Apple"}, "answer": "1"}, 0),
        ({"choices": {"yes": "It is.", "no": "It is not."}, "answer": "no"}, 1),
        ({"choices": None, "A": "Tomato", "B": "Apple", "answer": "B"}, 1),
        ({"choices": None, "A": 4, "B": 5, "C": float("nan"), "D": "", "answer": 5}, 1),  # no number of an answer
        ({"choices": None, "A": 4, "B": 5, "C": float("nan"), "D": "", "answer": 6}, None),
        ({"choices": None, "A": 4, "B": 5, "C": float("nan"), "D": "", "answer": "5"}, 1),
        ({"answer": "Five"}, 1),
        ({"choices": ["Red ", "blue"], "answer": "red"}, 0),
        ({"answer": "(B)"}, 1),
        ({"answer": "B."}, 1),
        ({"answer": "b)"}, 1),
        ({"answer": " [B]. "}, 1),
        ({"choices": ["(B)", "(A)"], "answer": "(B)"}, 0),
        ({"choices": ["(B)", "(A)"], "answer": "(b)"}, 0),
        ({"choices": ["B", "A"], "answer": "b"}, 1),  # a letter goes before another case
        ({"choices": ["x", "Y"], "answer": "X"}, 0),
        ({"choices": [], "A": "Tomato", "B": "Apple", "answer": "B"}, 1),
        ({"answer": "(B) five"}, 1),
        ({"answer": "c. Six"}, 2),
    ],
)
def test_the_right_answer_is_said_in_many_ways(row: dict[str, Any], right: int | None) -> None:
    if right is None:
        with pytest.raises(SampleError, match="answer: 6 is none of its 2 answers: '4', '5'"):
            read_offer({"choices": ["four", "five", "six"], **row})
        return
    assert read_offer({"choices": ["four", "five", "six"], **row}).right == right


@pytest.mark.parametrize(
    "said", [True, -1, 3, "3", "D", "sixth", 1.5, ["a"], "(D)", "D.", "9" * 5000, "A or B", "(4)", "(A) five"]
)
def test_what_is_no_answer_is_not_taken_for_one(said: Any) -> None:
    with pytest.raises(SampleError, match=r"^gold: .{1,60} is none of its 3 answers: 'four', 'five', 'six'$"):
        read_offer({"choices": ["four", "five", "six"], "gold": said})


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"choices": ["No", "no"]}, "NO"),
        ({"choices": {"A": "a", "B": None, "C": "c"}}, "B"),  # no place, as letters are labels
        ({"choices": None, "A": "red", "B": "blue", "D": "green"}, "C"),
        ({"choices": {"1": "x", "2": "y"}}, "0"),  # nor where they are numbers
    ],
)
def test_what_may_be_two_answers_or_is_not_offered_is_none(row: dict[str, Any], said: str) -> None:
    with pytest.raises(SampleError, match=f"gold: '{said}' is none of its {len(row['choices'] or '123')}"[:-1]):
        read_offer({**row, "gold": said})


def test_one_letter_column_may_be_about_anything() -> None:
    with pytest.raises(SampleError, match="offers nothing"):
        read_offer({"A": "a", "C": "c", "answer": "A"})


def test_an_error_names_answers_shortened() -> None:
    with pytest.raises(SampleError, match=r"none of its 9 answers: 'w{28}\.\.', '1', '2', '3', '4', '5' and 3 more$"):
        read_offer({"choices": ["w" * 99, *map(str, range(1, 9))], "answer": "apple"})


def test_questions_whose_answer_is_none_of_theirs_are_one_cause() -> None:
    causes = []
    for number in range(30):
        with pytest.raises(SampleError) as error:
            read_offer({"choices": [f"word {chr(97 + n)}{number}" for n in range(3)], "answer": f"some{number} thing"})
        causes.append(Incident(f"a.jsonl:{number}", "a", "sample", str(error.value)))
    lines = list(incident_lines(causes, "left out"))
    assert len(lines) == 21 and lines[-1] == (
        "left out: 10 more: what it says is none of its answers (--json names all)"
    )


@pytest.mark.parametrize(
    ("row", "said", "right"),
    [
        ({"a0": "x", "a1": None, "a2": "z"}, "2", "z"),
        ({"a0": "x", "a1": None, "a2": "z"}, "B", None),
        ({"a0": "x", "a1": None, "a2": "z"}, 1.0, None),
        ({"a0": None, "a1": "x", "a2": "z"}, "A", None),
        ({"a0": "x", "a1": "y", "a2": None}, "B", "y"),
        ({"option 0": "x", "option 1": None, "option 2": "z", "option 3": "w"}, "C", None),
        ({"option 0": "x", "option 1": None, "option 2": "z", "option 3": "w"}, "W", "w"),
        ({"option_a": "x", "option_b": None, "option_c": "z"}, 1, None),
        ({"option_a": "x", "option_b": None, "option_c": "z"}, "1", None),
        ({"option_a": "x", "option_b": None, "option_c": "z"}, "C", "z"),
        ({"option_a": "x", "option_b": None, "option_c": "3"}, 3, "3"),
        ({"choices": {"A": "x", "B": None, "C": "z"}}, 1, None),
        ({"choices": {"text": ["x", "z"], "label": ["0", "2"]}}, "B", None),
        ({"choices": {"text": ["x", "z"], "label": ["2", "1"]}}, "B", None),
        ({"choices": {"text": ["x", "z"], "label": ["1", "2"]}}, "B", "z"),
    ],
)
def test_where_an_answer_is_missing_between_others_no_place_says_which_is_right(
    row: dict[str, Any], said: Any, right: str | None
) -> None:
    if right is None:
        with pytest.raises(SampleError, match="is none of its"):
            read_offer({**row, "answer": said})
        return
    offer = read_offer({**row, "answer": said})
    assert offer.answers[offer.right] == right


def test_an_error_names_the_answer_that_is_missing_between_others() -> None:
    with pytest.raises(SampleError, match=r"a1 is missing, and a place may count it or not: give the label \(0, 2\)$"):
        read_offer({"a0": "x", "a1": None, "a2": "z", "answer": "B"})
