"""Questions of benchmarks in the columns that they are published with; what they ask is made up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kosmos.data.choices import ChoiceSource
from kosmos.data.document import Media, Text
from kosmos.data.sources.choice_columns import MOST_KNOWN, ChoiceColumns
from kosmos.data.sources.choices import Offer
from kosmos.errors import ConfigError, DataError

Open = Callable[..., ChoiceSource]
COLOURS = ["red", "green", "blue"]
SIX = {f"option {number}": f"C walks {number}." for number in range(5)}
FIVE = {f"a{number}": word for number, word in enumerate(["run", "sit", "eat", "sing", "sleep"])}


@pytest.fixture
def asked(open_: Callable[..., Any], tmp_path: Path) -> Open:
    """The questions of rows, of which one film is there."""
    (tmp_path / "again.mp4").write_bytes(b"a film")

    def opened(*rows: dict[str, Any], **columns: str) -> ChoiceSource:
        (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = {"modalities": ("video",), "asked": True, "choices": True, "columns": columns}
        return ChoiceSource(open_(tmp_path / "asked.jsonl", **given), False, 9, str.encode)

    return opened


def shown(source: ChoiceSource) -> tuple[list[Any], str]:
    """The media and the text of the first question."""
    parts = source.question(0).segments
    media = [(part.source.name, part.clip) for part in parts if isinstance(part, Media)]  # type: ignore[union-attr]
    return media, "".join(part.text for part in parts if isinstance(part, Text))


def test_candidates_and_a_stretch_in_seconds(asked: Open) -> None:
    row = {"video": "again.mp4", "question": "Which?", "candidates": COLOURS, "answer": "green"}
    assert asked(row).offers == [Offer(("red", "green", "blue"), 1)]
    source = asked({**row, "start": 1.5, "end": 4}, start="start", end="end")
    assert source.offers == [Offer(("red", "green", "blue"), 1)] and not source.incidents
    assert shown(source) == ([("again.mp4", (1.5, 4.0))], "Which?")


@pytest.mark.parametrize("truth", [3, "3", 3.0])
def test_a_numbered_column_for_each_option_and_the_truth(asked: Open, truth: object) -> None:
    source = asked({"q_uid": "again.mp4", "question": "Why?", **SIX, "truth": truth}, video="q_uid")
    assert source.offers == [Offer(tuple(SIX.values()), 3)]
    assert shown(source) == ([("again.mp4", None)], "Why?")


@pytest.mark.parametrize("answer", [2, "2", "C", "eat"])
def test_a_column_for_each_answer_from_a0_on(asked: Open, answer: object) -> None:
    row = {"video": "again.mp4", "frame_count": 9, "question": "what does it do", "answer": answer, "qid": 1, **FIVE}
    assert asked(row).offers == [Offer(tuple(FIVE.values()), 2)]
    fewer = asked({**row, "a1": None, "a3": None})
    assert fewer.offers == [Offer(("run", "eat", "sleep"), 1)] * (answer != "C")  # nobody knows what C counts


def test_options_with_letters_and_a_film_in_a_column_of_another_name(asked: Open) -> None:
    row = {
        "video_id": "001", "duration": "short", "videoID": "again.mp4", "question_id": "001-1", "question": "Which?",
        "options": ["A. red", "B. green", "C. blue", "D. none"], "answer": "B",
    }  # fmt: skip
    source = asked(row, video="videoID")
    assert source.offers[0].right == 1 and shown(source) == ([("again.mp4", None)], "Which?")


def test_letters_stand_for_columns_of_any_name(asked: Open) -> None:
    row = {"sol1": "push", "sol2": "pull", "goal": "open", "label": 1, "question": "not this", "choices": ["x", "y"]}
    source = asked(row, A="sol1", B="sol2", question="goal")
    assert source.offers == [Offer(("push", "pull"), 1)] and shown(source)[1] == "open"


def test_what_is_named_counts_alone(asked: Open) -> None:
    row = {
        "query": "not this", "text": "Which?", "context": "A tale.", "choices": ["x", "y"], "label": 0,
        "all": {"said": COLOURS}, "key": "C",
    }  # fmt: skip
    source = asked(row, question="text", choices="all.said", answer="key")
    assert source.offers == [Offer(("red", "green", "blue"), 2)]
    assert shown(source)[1] == "A tale.\nWhich?"


def test_a_row_without_what_is_named_costs_itself_alone(asked: Open) -> None:
    row = {"q": "Which?", "choices": COLOURS, "key": 0}
    source = asked(row, {"q": "Which?", "choices": COLOURS, "answer": 0}, question="q", answer="key")
    assert len(source.offers) == 1
    assert [one.cause for one in source.incidents] == ["none of the answers is said to be right (key)"]


def test_a_numbered_column_for_each_answer_and_a_label(asked: Open) -> None:
    row = {"context": "It rained.", "question": "Why?", "answer0": "run", "answer1": "sit", "answer2": None, "label": 1}
    assert asked(row).offers == [Offer(("run", "sit"), 1)]


@pytest.mark.parametrize(
    ("offered", "advice"),
    [
        ({"option1": "run", "option2": "sit"}, "{A: option1, B: option2}"),
        ({"answerA": "run", "answerB": "sit", "answerC": "eat"}, "{A: answerA, B: answerB, C: answerC}"),
        ({"first": "run", "second": "sit"}, "{A: COLUMN, B: COLUMN}"),
    ],
)
def test_columns_of_an_answer_each_that_have_no_meaning_are_named_one_by_one(
    asked: Open, offered: dict[str, str], advice: str
) -> None:
    row = {"question": "What?", **offered, "answer": "sit"}
    line = f"name it (columns: {{choices: COLUMN}}), or one each (columns: {advice}), where a number that says"
    with pytest.raises(DataError, match=re.escape(line)):
        asked(row)
    if "COLUMN" not in advice:
        columns = dict(pair.split(": ") for pair in advice.strip("{}").split(", "))
        assert asked(row, **columns).offers == [Offer(tuple(offered.values()), 1)]


@pytest.mark.parametrize(
    ("columns", "error", "line"),
    [
        ({"vidoe": "q"}, ConfigError, r"^columns\.vidoe: no modality and no role; did you mean video\?$"),
        ({"q": "question"}, ConfigError, r"^columns\.q: no modality and no role; the role comes first: question: q$"),
        ({"output": "q"}, ConfigError, r"^columns\.output: no modality and no role; there are: A, B, answer, "),
        ({"answer": "turth"}, DataError, r"columns\.answer: no column 'turth'; did you mean truth\?$"),
        ({"video": "flim"}, DataError, r"columns\.video: no column 'flim'; did you mean film\?$"),
        ({"A": "q", "C": "film"}, ConfigError, r"^columns\.C: columns of an answer each are named from A on, .* A, C$"),
        ({"A": "q", "B": "f", "choices": "c"}, ConfigError, r"^columns\.choices: columns\.A and so on say what is off"),
        ({}, DataError, r"no column holds the question \(.*; name it \(columns: \{question: COLUMN\}\)$"),
    ],
)
def test_what_columns_cannot_name(asked: Open, columns: dict[str, str], error: type[Exception], line: str) -> None:
    with pytest.raises(error, match=line):
        asked({"q": "Which?", "film": 3, "choices": COLOURS, "truth": 0}, **columns)


def test_the_columns_of_a_question_are_found_once_for_rows_that_have_the_same() -> None:
    own = ChoiceColumns({"question": "asked.text"})
    first, second = {"asked": 1, "a0": 2, "a1": 3, "more": 4}, {"asked": 1, "choices": 2}
    assert own.all(first) == {"asked", "a0", "a1"} and own.all(second) == {"asked", "choices"}
    assert own.all(dict(first)) is own.all(first)
    for number in range(2 * MOST_KNOWN):  # rows that all differ fill no memory, and are read as the others
        assert own.all({**second, f"more {number}": 3}) == {"asked", "choices"}
    assert len(own._known) == MOST_KNOWN
