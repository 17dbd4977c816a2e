"""Columns that an error proposes are such that the rows can be read by them, be it as a path into an object."""

from __future__ import annotations

import json
import re
import shlex

import datasets
import pytest
import yaml

from kosmos.data.document import Text
from kosmos.data.sources.list_advice import of_list
from kosmos.errors import DataError, SampleError

DOCVQA = {"id": "1", "query": {"de": "Wer?", "en": "Who?"}, "answers": ["Ann", "Ann B."], "words": ["a"]}


@pytest.fixture(params=["jsonl", "json", "parquet", "saved"])
def written(request, rows, table, tmp_path):
    def write(row):
        if request.param == "parquet":
            return table({name: [value] * 2 for name, value in row.items()})
        if request.param == "jsonl":
            return rows(row, row)
        if request.param == "json":
            (tmp_path / "rows.json").write_text(json.dumps([row, row]))
            return tmp_path / "rows.json"
        datasets.Dataset.from_list([row, row]).save_to_disk(str(tmp_path / "saved"))
        return tmp_path / "saved"

    return write


@pytest.mark.parametrize(
    ("row", "proposed", "learned"),
    [
        (DOCVQA, {"query": "query.en", "response": "answers"}, "Ann"),
        (
            {
                "question": {"said": "Who?", "n": 1},
                "answer": {"score": 0.5, "matched": "an", "text": "Ann"},
                "hint": "x",
            },
            {"query": "question.said", "input": "hint", "response": "answer.text"},
            "Ann",
        ),
        (
            {"problem": "Who?", "answers": {"text": ["Ann"], "answer_start": [1]}},
            {"query": "problem", "response": "answers"},
            "Ann",
        ),
        ({"problem": "Who?", "solution": {"n": 1}}, {"query": "problem", "response": "solution"}, '{"n": 1}'),
        ({"query": {"n": 1}, "problem": "Who?", "answer": "Ann"}, {"query": "problem", "response": "answer"}, "Ann"),
        (
            {"instruction": "Who?", "context": "Ann did.", "response": "Ann", "category": "qa"},
            {"query": "instruction", "input": "context", "response": "response"},
            "Ann",
        ),
        ({"input": "Who?", "output": "Ann"}, {"query": "input", "response": "output"}, "Ann"),
        ({"caption": {"de": "ein Hund", "en": "a dog"}}, {"text": "caption.en"}, "a dog"),
    ],
)
def test_what_is_proposed_is_read(open_, written, row, proposed, learned):
    path = written(row)
    with pytest.raises(DataError, match="no column 'text'") as told:
        open_(path)
    said = re.search(r"columns: \{(\w+: \w[^}]*)\}$", told.value.line())[1]
    columns = dict(pair.split(": ") for pair in said.split(", "))
    assert columns == proposed
    read = [s for s in open_(path, columns=columns).document(0).segments if isinstance(s, Text)]
    assert [s.text for s in read if s.train] == [learned]
    asked = "".join(s.text for s in read if not s.train)
    assert all(asked.count(row[name]) == 1 for name in ("context", "hint", "input") if name in row)


def test_a_question_with_a_context_is_not_taken_for_that_alone(open_, rows):
    with pytest.raises(DataError) as told:
        open_(rows({"instruction": "Who?", "context": "Ann did.", "response": "Ann"}))
    assert "did you mean" not in told.value.line()


def test_what_a_question_offers_is_told_to_be_left_out(open_, rows):
    row = {"question": "Who?", "context": "Ann did.", "choices": ["Ann", "Bo"], "answer": "Ann"}
    with pytest.raises(DataError, match=r"input: context, response: answer}, without choices: a template shows more$"):
        open_(rows(row))


@pytest.mark.parametrize("columns", [{}, {"image": "filename"}, {"text": "caption"}])
def test_all_columns_of_a_table_with_media_are_proposed_at_once_and_can_be_pasted(
    open_, tmp_path, monkeypatch, columns
):
    (tmp_path / "img").mkdir()
    (tmp_path / "img" / "1.png").write_bytes(b"medium")
    (tmp_path / "list.csv").write_text("filename,caption\nimg/1.png,a dog\n")
    wanted = {"image": "filename", "text": "caption"}
    for path in (tmp_path / "list.csv", tmp_path):
        with pytest.raises(DataError) as told:
            open_(path, columns=columns if path.is_file() else {})
        found = re.search(
            r"columns: ({[^}]*})", told.value.line().rpartition("; ")[2] if path.is_file() else told.value.line()
        )
        assert yaml.safe_load(found[1]) == wanted
    assert [type(s).__name__ for s in open_(tmp_path / "list.csv", columns=wanted).document(0).segments]


@pytest.mark.parametrize(
    ("first", "is_told"), [("filename,caption", False), ("img/1.png,it sleeps", True), ("bild,titel", True)]
)
def test_a_first_line_that_names_columns_is_not_taken_for_a_row(open_, tmp_path, first, is_told):
    (tmp_path / "list.csv").write_text(f"{first}\n1.png,a dog\n")
    with pytest.raises(DataError, match=r"columns\.text: no column 'capton'") as told:
        open_(tmp_path / "list.csv", columns={"text": "capton"})
    assert ("is a row already" in told.value.line()) == is_told and "?." not in told.value.line()


def test_a_row_without_the_columns_of_others_is_told_the_same(open_, rows):
    source = open_(rows({"text": "a"}, DOCVQA))
    with pytest.raises(SampleError, match=r"columns: \{query: query\.en, response: answers\}"):
        source.document(1)


def test_a_context_beside_a_column_that_is_read_with_the_question_is_not_named_in_its_place(open_, rows):
    path = rows({"prompt": "Do", "input": "this", "output": "Done", "context": "c"})
    with pytest.raises(
        DataError, match=r"\{query: prompt, response: output\}, without context: a template shows more$"
    ):
        open_(path)
    document = open_(path, columns={"query": "prompt", "response": "output"}).document(0)
    assert [s.text for s in document.segments if isinstance(s, Text)] == ["Do\nthis", "Done"]


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("image_id,path,caption", {"image": "path", "text": "caption"}),
        ("speaker_name,image_file,sentence", {"image": "image_file", "text": "sentence"}),
        ("id,photo,text", {"image": "COLUMN"}),
        ("text,image", None),
    ],
)
def test_of_a_list_of_media_the_column_that_names_files_is_proposed(tmp_path, header, columns):
    (tmp_path / "list.csv").write_text(f"{header}\na,b,c\n")
    ((_, entry),) = [shlex.split(of_list(tmp_path / "list.csv", "image"))]
    assert yaml.safe_load(entry).get("columns") == columns
