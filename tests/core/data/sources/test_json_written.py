"""Objects and lists as what is learned are JSON on one line, without the nulls that a table fills in."""

from __future__ import annotations

import datetime
import json

import datasets
import pytest

from kosmos.data.document import Text
from kosmos.data.sources import texts_of
from kosmos.errors import SampleError

PARSED = {"z": "Käse", "menu": [{"nm": "tea", "price": 1.5}, {"nm": "cake", "sub": None}], "paid": True}
LINE = '{"z": "Käse", "menu": [{"nm": "tea", "price": 1.5}, {"nm": "cake", "sub": null}], "paid": true}'


def learned(source, index=0):
    return [s.text for s in source.document(index).segments if isinstance(s, Text) and s.train]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{q}\n→ {parsed}", LINE),
        ("→ {truth.parsed}", LINE),
        ("→ {parsed.menu}!", '[{"nm": "tea", "price": 1.5}, {"nm": "cake", "sub": null}]!'),
        ("→ {box}", "[[1, 2.5], []]"),
        ("→ {empty}", "{}"),
        ("→ {tags}", "a, b"),
        ("→ {answers}", "yes"),
    ],
)
def test_a_placeholder_of_an_object_or_a_nested_list_is_its_json(open_, rows, template, expected):
    truth = json.dumps({"parsed": PARSED})
    lists = {"box": [[1, 2.5], []], "tags": ["a", "b"], "answers": [{"answer": "yes"}], "empty": {}}
    assert learned(open_(rows({"q": "?", "parsed": PARSED, "truth": truth, **lists}), template=template)) == [expected]


def test_what_is_asked_by_a_template_may_be_an_object_too(open_, rows):
    source = open_(rows({"form": {"name": None}, "name": "Ann"}), template="{form}\n→ {name}")
    assert list(texts_of(source)) == ['{"name": null}\n', "Ann"]


@pytest.mark.parametrize("ask", ["instruction", "query", "prompt", "question"])
def test_an_answer_that_is_an_object_is_its_json(open_, rows, ask):
    answer = {"instruction": "output", "query": "response", "prompt": "completion", "question": "answer"}[ask]
    assert learned(open_(rows({ask: "Read it.", answer: PARSED}))) == [LINE]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ({}, "response: expected text, got an object$"),
        ([{"a": 1}], r'response: expected text, got a list; a template writes it as JSON \("\{COLUMN\}"\)$'),
        ({"text": ["a"], "answer_start": [1]}, r"an object whose text is a list: .*columns: \{answers: response\}"),
        ({"role": "assistant", "content": "a"}, r"a turn of a chat; name its text \(response\.content\)"),
        ({"path": "a.png", "bytes": None}, "expected text, got an object that holds a file"),
        ({"x": float("nan")}, "cannot be written as JSON"),
        (
            {"value": "Ann", "aliases": ["A"]},
            r"text in value; name its text \(columns: \{response: response\.value\}\)",
        ),
        ({"text": "Paris", "start": 3}, r"response\.text\}\), or write a template, .* \(\"\{response\}\"\)"),
        ({"content": "hi"}, r"response\.content"),
        ({"answer": "yes", "why": None}, r"response\.answer"),
    ],
)
def test_what_means_something_else_costs_its_row(open_, rows, answer, cause):
    source = open_(rows({"query": "?", "response": answer}))
    with pytest.raises(SampleError, match=cause):
        source.document(0)


def test_the_text_of_an_answer_with_more_is_named_as_the_error_says(open_, rows):
    file = rows({"question": "Who?", "answer": {"value": "Ann", "aliases": ["A"]}})
    with pytest.raises(SampleError, match=r"columns: \{answer: answer\.value\}"):
        open_(file).document(0)
    assert learned(open_(file, columns={"answer": "answer.value"})) == ["Ann"]
    assert learned(open_(file, template="{question}→{answer}")) == ['{"value": "Ann", "aliases": ["A"]}']


@pytest.mark.parametrize(
    "row",
    [
        {"text": {"a": 1}},
        {"query": {"a": 1}, "response": "b"},
        {"prompt": {"a": 1}, "completion": "b"},
        {"instruction": "?", "input": {"a": 1}, "output": "b"},
    ],
)
def test_questions_and_plain_texts_of_objects_cost_their_row_and_say_what_does_it(open_, rows, row):
    with pytest.raises(SampleError, match=r"expected text, got an object; a template writes it as JSON"):
        open_(rows(row)).document(0)


FILLED = [{"a": 1, "sub": [{"x": 1}, None, {"y": 2}]}, {"b": 2, "sub": None}, {"sub": []}]
WITHOUT = ['{"a": 1, "sub": [{"x": 1}, null, {"y": 2}]}', '{"b": 2}', '{"sub": []}']


def test_nulls_that_a_table_fills_in_are_not_written(open_, table, tmp_path):
    texts = [json.dumps({"deep": {"null": None}})] * 3
    columns = {"q": ["?"] * 3, "parsed": FILLED, "truth": texts, "meta": [{"truth": text} for text in texts]}
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "saved"))
    for path in (table(columns), tmp_path / "saved"):
        source = open_(path, template="{q}\n→ {parsed}")
        assert [learned(source, n)[0] for n in range(3)] == WITHOUT
        source = open_(path, columns={"query": "q", "response": "parsed"})
        assert [learned(source, n)[0] for n in range(3)] == WITHOUT
        for column in ("truth.deep", "meta.truth.deep"):
            assert learned(open_(path, template=f"→ {{{column}}}")) == ['{"null": null}']


def test_an_object_of_nulls_stands_in_a_table_for_one_that_is_missing(open_, table, tmp_path):
    none = {"total": None, "menu": {"tea": None}}
    answers = [{"total": "9", "menu": {"tea": None}}, none]
    columns = {"question": ["?"] * 2, "answer": answers, "listed": [[{"x": 1}, {"x": None}], [{"x": None}]]}
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "saved"))
    for path in (table(columns), tmp_path / "saved"):
        source = open_(path)
        assert learned(source) == ['{"total": "9"}']
        with pytest.raises(SampleError, match=r"answer is empty$"):
            source.document(1)
        assert learned(open_(path, asked=True), 1) == []
        source = open_(path, template="{question}→{answer}{listed}.")
        assert [learned(source, n) for n in range(2)] == [['{"total": "9"}[{"x": 1}, {}].'], ["."]]


def test_an_object_of_nulls_in_json_is_written(open_, rows):
    assert learned(open_(rows({"question": "?", "answer": {"total": None}}))) == ['{"total": null}']


@pytest.mark.parametrize("value", [b"x", datetime.date(2024, 1, 1)])
def test_an_object_that_has_no_json_costs_its_row(open_, table, value):
    source = open_(table({"a": [{"b": value}]}), template="{a}")
    with pytest.raises(SampleError, match=r"a: cannot be written as JSON \(.*\); name a text within it"):
        source.document(0)
