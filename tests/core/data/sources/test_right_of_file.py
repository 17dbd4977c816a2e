"""Which answer is right where a row by itself may mean two, and what all rows of a file have in common."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kosmos.commands.choices import READ, columns_of
from kosmos.data.choices import ChoiceSource
from kosmos.data.document import Text
from kosmos.data.sources.choices import read_offer
from kosmos.data.sources.listed_texts import listed_text
from kosmos.data.sources.offering import Offering
from kosmos.data.sources.since import opened_before
from kosmos.errors import ConfigError, DataError, SampleError
from kosmos.run_choices import entry_of

Open = Callable[..., ChoiceSource]
NUMBERS = ["1", "0", "3", "2"]
WORDS = ["fox", "cow", "dog", "hen"]


@pytest.fixture
def asked(open_: Callable[..., Any], tmp_path: Path) -> Open:
    def opened(*rows: dict[str, Any], most: int = 99, columns: Any = None, **by: Any) -> ChoiceSource:
        path = tmp_path / "asked.jsonl"
        path.write_text("".join(json.dumps({"question": "Which?", **row}) + "\n" for row in rows))
        given = {"modalities": (), "asked": True, "choices": Offering(**by), "columns": columns or {}}
        return ChoiceSource(open_(path, **given), False, most, str.encode)

    return opened


def row(options: Any, answer: Any) -> dict[str, Any]:
    return {"options": options, "answer": answer}


def right(source: ChoiceSource) -> list[int]:
    return [offer.right for offer in source.offers]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([row(WORDS, "2")], 2),
        ([row(WORDS, 2)], 2),
        ([row(["10", "20", "30"], "20")], 3),
        ([row(WORDS, "2"), row(["2", "1", "0"], "2")], 2),
    ],
)
def test_numbers_are_what_other_rows_say_they_are(asked: Open, others: list[dict[str, Any]], expected: int) -> None:
    assert right(asked(*others, row(NUMBERS, "2")))[-1] == expected
    assert right(asked(row(NUMBERS, "2"), *others))[0] == expected


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], 2),  # a place, where nothing says otherwise
        ([row(WORDS, 2)], 2),
        ([row([1, 2, 3, 4], 4)], 3),
        ([row([10, 20, 30], 20)], 3),
        ([row([1, 2, 3, 4], 4), row(WORDS, 2)], 2),
    ],
)
def test_numbers_that_are_no_texts_are_too_and_else_places(asked: Open, others: list[Any], expected: int) -> None:
    numbers = [int(number) for number in NUMBERS]
    assert right(asked(*others, row(numbers, 2)))[-1] == expected
    assert right(asked(row(numbers, 2), *others))[0] == expected


@pytest.mark.parametrize("text", ["{[1]: 2}", "{[1]}", "{{}}", "['a', 'b' 'c', 'd']", "[" * 30_000, "__import__('os')"])
def test_a_text_that_is_no_list_stays_what_it_is(text: str) -> None:
    assert listed_text(text) == text


def test_numbers_in_such_a_list_are_as_they_are_written() -> None:
    assert listed_text("[1.10, 2.50]") == ["1.10", "2.50"]
    assert listed_text("['a', \"it's\"]") == ["a", "it's"]


def test_questions_of_a_run_that_was_begun_before_are_read_as_then(asked: Open) -> None:
    rows = [{"hint": "Because.", **row(NUMBERS, "2")}, row(WORDS, "2")]
    assert right(asked(*rows))[0] == 2
    assert "Because." in str(asked(*rows).source.document(0).segments)
    with opened_before(lacking=["questions"]):
        older = asked(*rows)
    assert right(older)[0] == 3
    assert "Because." not in str(older.source.document(0).segments)


@pytest.mark.parametrize(("other", "expected"), [(row(WORDS, "B"), 1), (row(["A", "B", "x"], "x"), 0)])
def test_so_are_letters(asked: Open, other: dict[str, Any], expected: int) -> None:
    assert right(asked(row(["B", "A", "D"], "B"), other))[0] == expected


def test_rows_that_are_not_asked_decide_too(asked: Open) -> None:
    rows = [row(NUMBERS, "2"), *[row(WORDS, "2")] * 3]
    assert {tuple(offer) for offer in asked(*rows, most=1).offers} <= {(tuple(NUMBERS), 2), (tuple(WORDS), 2)}


def test_where_nothing_decides_the_file_is_refused_once(asked: Open) -> None:
    doubtful = [row(NUMBERS, "2"), row(NUMBERS, "0"), row(["2", "1", "0"], "1")]
    line = (
        "2 of 3 rows say what is right as a number from 0 on or as a text, which is another answer, and no other row "
        r"decides; say which \(options: {answer_is: index} or text\); the first: .*asked.jsonl:1: '1', '0', '3', '2'"
    )
    with pytest.raises(DataError, match=line):
        asked(*doubtful)
    with pytest.raises(DataError, match="4 rows say"):  # both ways stand in some row alone
        asked(*doubtful[:2], row(WORDS, "2"), row(["10", "20"], "20"))
    with opened_before():
        assert right(asked(*doubtful)) == [3, 1, 1]
    assert right(asked(*doubtful, answer_is="index")) == [2, 0, 1]
    assert right(asked(*doubtful, answer_is="text")) == [3, 1, 1]


def test_a_way_that_is_stated_is_the_only_one(asked: Open) -> None:
    source = asked(row(WORDS, "B"), row(WORDS, "cow"), row(["B", "A"], "(B)"), row(WORDS, 1), answer_is="letter")
    assert (right(source), len(source.incidents)) == ([1, 1], 2)
    assert "'cow' is none of its 4 answers" in source.incidents[0].cause


@pytest.mark.parametrize(
    "options",
    [
        "['a cat', 'a dog']",
        '["a cat", "a dog"]',
        "['a cat', \"a dog\"]",
        "{'A': 'a cat', 'B': 'a dog'}",
        " ['a cat','a dog'] ",
    ],
)
def test_a_list_as_python_shows_it(options: str) -> None:
    assert read_offer({"options": options, "answer": "B"}) == (("a cat", "a dog"), 1)


@pytest.mark.parametrize("options", ["[__import__('os'), 'a']", "[['a'], ['b']]", "['a', 'b'", "a, b", "[b'a', b'b']"])
def test_other_texts_are_no_list(options: str) -> None:
    with pytest.raises(SampleError, match=r"options: expected a list of two answers or more, got a string \("):
        read_offer({"options": options, "answer": "B"})


def test_a_list_as_python_shows_it_in_a_table(open_: Callable[..., Any], tmp_path: Path) -> None:
    lines = ["question\toptions\tanswer", "Which?\t['a cat', 'a dog']\tB", 'Which?\t["a cat", "a dog"]\tA']
    (tmp_path / "asked.tsv").write_text("\n".join(lines))
    given = open_(tmp_path / "asked.tsv", modalities=(), asked=True, choices=True)
    assert right(ChoiceSource(given, False, 9, str.encode)) == [1, 0]


def test_every_row_may_offer_the_same(asked: Open) -> None:
    rows = [{"text": "Is it?", "question": None, "label": label} for label in ("yes", "no", 1, "maybe")]
    source = asked(*rows, choices=("yes", "no"), columns={"question": "text"})
    assert (right(source), len(source.incidents)) == ([0, 1, 1], 1)
    with pytest.raises(SampleError, match=r"if text asks, name it \(columns: {question: text}\)"):
        asked(*rows, choices=("yes", "no")).question(0)


def test_a_hint_stands_in_front_of_the_question(asked: Open) -> None:
    source = asked({**row(WORDS, 0), "hint": "It is red."}, {**row(WORDS, 0), "hint": ""})
    said = ["".join(part.text for part in source.question(n).segments if isinstance(part, Text)) for n in (0, 1)]
    assert said == ["It is red.\nWhich?", "Which?"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"answer_is": "number"}, "options.answer_is: input should be 'index', 'letter' or 'text'"),
        (
            {"choices": [True, False]},
            r'options.choices: YAML reads yes and no as true and false; write \["yes", "no"\]',
        ),
        ({"choices": ["a"]}, "options.choices: expected two different answers or more"),
        ({"answers": ["a", "b"]}, "options.answers: unknown field"),
    ],
)
def test_options_that_cannot_be_read(options: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        entry_of("--choices", {"path": "asked.jsonl", "options": options})
    assert entry_of("--choices", {"path": "a", "options": {"choices": [0, "1"]}}).options.choices == ["0", "1"]


def test_answers_are_gone_on_with_only_where_questions_are_read_alike() -> None:
    plain = entry_of("--choices", "asked.jsonl")
    by = entry_of("--choices", {"path": "asked.jsonl", "options": {"answer_is": "text"}})
    assert columns_of([]) == {}
    assert columns_of([plain]) == {"choices_read": READ}
    assert columns_of([plain, by]) == {"choices_read": READ, "choices_options": [{}, {"answer_is": "text"}]}


def test_numbers_that_may_be_texts_are_told_where_no_row_decides(asked: Open) -> None:
    source = asked(row(["4", "3", "2", "1", "0"], 1), row(["4", "3", "2", "1", "0"], 2))
    assert right(source) == [1, 2]
    [line] = source.remarks
    assert line.startswith(
        "1 of 2 rows give a number that is the place of one answer, from 0 on, and the text of another"
    )
    assert "asked.jsonl:1: '4', '3', '2', '1', '0'" in line
    assert asked(row(NUMBERS, 2), row(WORDS, 2)).remarks == ()
    assert asked(row(NUMBERS, 2), answer_is="index").remarks == ()
