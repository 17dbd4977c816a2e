"""Several right answers to one question: one is learned, all are there for metrics."""

from __future__ import annotations

import json

import pytest

from kosmos.data.document import Document, Text
from kosmos.errors import ConfigError, DataError, NoSuchPart, SampleError

LIST = ["toshiba", "nokia", "nokia"]
VQA = [{"answer": answer, "answer_confidence": "yes", "answer_id": n} for n, answer in enumerate(LIST)]
COLUMNS = {key: [row[key] for row in VQA] for key in VQA[0]}
SQUAD = {"text": LIST, "answer_start": [1, 2, 3]}
FORMS = {"texts": LIST, "objects": VQA, "an object of lists": COLUMNS, "SQuAD": SQUAD}


def learned(source, index=0):
    """What is learned of a document, and its references."""
    document = source.document(index)
    return [part.text for part in document.segments if isinstance(part, Text) and part.train], document.references


@pytest.mark.parametrize("given", [
    {}, {"columns": {"query": "question", "response": "answers"}}, {"columns": {"answer": "answers"}},
    {"columns": {"query": "question", "answers": "answers"}}, {"template": "[image] {question}\n→ {answers}"},
], ids=["by itself", "response", "answer", "answers", "template"])  # fmt: skip
@pytest.mark.parametrize("answers", FORMS.values(), ids=FORMS)
def test_the_most_frequent_answer_is_learned_and_all_are_references(open_, rows, table, answers, given):
    row = {"image": "a.png", "question": "Which?", "answers": answers, "image_id": 7}
    lines, columns = rows(row), table({key: [value] for key, value in row.items()})
    for path in (lines, columns):
        assert learned(open_(path, **given)) == (["nokia"], tuple(LIST))


def test_of_equally_frequent_answers_the_first_is_learned(open_, rows):
    source = open_(rows({"question": "Which?", "answers": ["b", "a", " ", "a", "b", " ", " "]}))
    assert learned(source) == (["b"], ("b", "a", "a", "b"))


def test_null_in_a_list_is_passed_over(open_, rows):
    row = {"question": "Which?", "answers": [None, "b", None, "a"], "others": ["c", None, "d"]}
    assert learned(open_(rows(row))) == (["b"], ("b", "a"))
    named = {"columns": {"query": "question", "answers": "answers", "references": "others"}}
    assert learned(open_(rows(row), **named)) == (["b"], ("c", "d"))


@pytest.mark.parametrize(
    "column", "correct_index correctAnswer correct_option is_correct labels Label gold_label answer_no target".split()
)
def test_beside_what_tells_the_right_one_answers_may_be_what_is_offered(open_, rows, column):
    with pytest.raises(DataError):
        open_(rows({"question": "Which?", "answers": ["x", "y"], column: 1}))


def test_numbers_are_answers_and_one_answer_has_no_other(open_, rows):
    asked = [{"question": "Which?", "answers": answers} for answers in ([3, 4.5, 3], ["nokia"], "nokia", 3)]
    source = open_(rows(*asked))
    found = [learned(source, n) for n in range(len(asked))]
    assert found == [(["3"], ("3", "4.5", "3")), (["nokia"], ()), (["nokia"], ()), (["3"], ())]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"columns": {"query": "question", "response": "answers"}},
        {"columns": {"answer": "answers"}},
        {"template": "{question} → {answers}"},
    ],
)
def test_tables_of_text_write_their_answers_as_json(open_, tmp_path, given):
    (tmp_path / "rows.csv").write_text('question,answers\nWhich?,"[""nokia"", ""toshiba""]"\nWhich?,nokia\n')
    source = open_(tmp_path / "rows.csv", **given)
    if "template" in given:
        assert [learned(source, n) for n in range(2)] == [([" nokia"], ("nokia", "toshiba")), ([" nokia"], ())]
        return
    assert [learned(source, n) for n in range(2)] == [(["nokia"], ("nokia", "toshiba")), (["nokia"], ())]


@pytest.mark.parametrize("answers", [[], [None], {"text": []}, None, [" "], {"text": [], "answer_start": []}])
def test_a_question_without_an_answer_is_a_bad_sample_unless_it_is_there_to_be_asked(open_, rows, answers):
    path = rows({"question": "Which?", "answers": answers})
    with pytest.raises(SampleError, match=r"rows\.jsonl:1: answers( is empty|: expected at least one right answer)"):
        open_(path).document(0)
    assert learned(open_(path, asked=True)) == ([], ())


@pytest.mark.parametrize(("answers", "cause"), [
    ([["a"]], r"answers\[0\]: expected text, got a list"),
    ([{"says": "a"}], r"answers\[0\]: expected a text, or an object with 'answer' or 'text'"),
    ({"says": "a"}, "answers: expected a text, or an object with 'answer' or 'text'"),
    ([{"answer": None}], r"answers\[0\]\.answer: expected text, got null"),
])  # fmt: skip
def test_what_is_no_answer_costs_its_row(open_, rows, answers, cause):
    path = rows({"question": "Which?", "answers": answers})
    with pytest.raises(SampleError, match=cause):
        open_(path).document(0)
    captions = rows({"text": "a", "others": answers}, name="captions.jsonl")
    with pytest.raises(SampleError, match=cause.replace("answers", "others")):
        open_(captions, columns={"references": "others"}).document(0)


@pytest.mark.parametrize("more", [{"label": 1}, {"answerKey": "B"}, {"choices": LIST}, {"context": "It is old."}])
def test_answers_that_may_be_what_is_offered_are_asked_about(open_, rows, more):
    path = rows({"question": "Which?", "answers": LIST, **more})
    with pytest.raises(
        DataError, match=r"its answer are columns: \{query: question, (input: context, )?response: answers\}"
    ):
        open_(path)
    assert learned(open_(path, columns={"query": "question", "response": "answers"})) == (["nokia"], tuple(LIST))


def test_what_was_understood_is_learned_as_before(open_, rows):
    kept = [
        ({"question": "Which?", "answer": "x", "answers": LIST}, "x"),
        ({"question": "Which?", "answer": LIST}, "toshiba, nokia, nokia"),
        ({"text": "x", "question": "Which?", "answers": [{}]}, "x"),
        ({"text": "x", "answers": {"a": 1}}, "x"),
        ({"messages": [{"role": "assistant", "content": "x"}], "question": "Which?", "answers": [{}]}, "x"),
    ]
    source = open_(rows(*(row for row, _ in kept)))
    assert [learned(source, n) for n in range(len(kept))] == [([text], ()) for _, text in kept]
    tags = rows({"tags": ["a", "b"], "answers": ["c", "d"]}, name="tags.jsonl")
    assert learned(open_(tags, columns={"text": "tags"})) == (["a, b"], ())
    assert learned(open_(tags, template="{answers} → {tags}{answers[1]}")) == ([" a, bd"], ())


@pytest.mark.parametrize("given", [
    {"columns": {"text": "captions[0]", "references": "captions"}},
    {"columns": {"references": "captions"}, "template": "[image] → {captions[0]}"},
    {"columns": {"text": "captions[0]", "references": "all.captions"}},
])  # fmt: skip
def test_references_may_be_named_beside_any_form(open_, rows, table, given):
    row = {"image": "a.png", "captions": ["A cat.", "One cat."], "all": {"captions": ["A cat.", "One cat."]}}
    for path in (rows(row), table({key: [value] for key, value in row.items()})):
        assert learned(open_(path, **given)) == (["A cat."], ("A cat.", "One cat."))


def test_references_need_not_be_there_where_a_row_has_none(open_, rows, tmp_path):
    source = open_(rows({"text": "a", "more": None}, {"text": "b", "more": "c"}), columns={"references": "more"})
    assert [learned(source, n) for n in range(2)] == [(["a"], ()), (["b"], ("c",))]
    with pytest.raises(DataError, match=r"columns\.references: no column 'mre'; did you mean more\?"):
        open_(tmp_path / "rows.jsonl", columns={"references": "mre"})
    with pytest.raises(DataError, match=r"columns\.references: no column 'mre'"):
        open_(tmp_path / "rows.jsonl", columns={"references": "mre"}, template="{text}")
    (tmp_path / "rows.csv").write_text('text,more\na,"[""b"", ""c""]"\n')
    for template in (None, "{text}"):
        found = learned(open_(tmp_path / "rows.csv", columns={"references": "more"}, template=template))
        assert found == (["a"], ("b", "c"))


def test_a_table_reads_answers_only_where_a_question_is_answered_by_them(open_, table):
    rows_ = {"text": ["x"], "question": ["Which?"], "answer": ["y"], "answers": [LIST], "references": [LIST]}
    assert open_(table(rows_)).table.columns == ("text", "question", "answer")
    del rows_["answer"], rows_["text"]
    assert open_(table(rows_, name="other.parquet")).table.columns == ("question", "answers")


def test_an_answer_that_is_told_elsewhere_is_not_taken_from_what_is_offered(open_, rows, table):
    row = {"image": "a.png", "question": "Which?", "answers": LIST, "answerKey": "B"}
    for path in (rows(row), table({key: [value] for key, value in row.items()})):
        assert learned(open_(path, asked=True)) == ([], ())


def test_two_columns_of_what_is_learned_are_one_too_many(open_, rows):
    path = rows({"question": "Which?", "reply": "x", "all": LIST})
    with pytest.raises(ConfigError, match=r"columns\.response: columns\.answers says what is learned, too; name one"):
        open_(path, columns={"query": "question", "response": "reply", "answers": "all"})


def test_offers_have_no_references(open_, rows):
    row = {"question": "Which?", "answers": LIST, "choices": ["a", "b"], "answer": 0}
    assert open_(rows(json.loads(json.dumps(row))), choices=True).document(0).references == ()


def test_references_of_a_document_are_texts():
    with pytest.raises(NoSuchPart, match="the references of a Document are 'nokia'; write a tuple of texts"):
        Document("here", (Text("nokia", train=True),), "nokia")
