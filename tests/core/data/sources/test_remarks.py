"""What rows have that is not read though it may be meant is said once, and costs no row."""

from __future__ import annotations

import re

import pytest

from kosmos.data.document import Text
from kosmos.data.sources.remarks import remarks_of


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"audio_filepath": "/elsewhere/b.wav", "duration": 1.0, "text": "x"},
            r"taken as text alone: audio_filepath names '/elsewhere/b\.wav', which is no file in the folder "
            r"of the data; if the files are meant, name the column \(columns: "
            r"\{audio: audio_filepath\}\) and their folder \(root\)",
        ),
        ({"sound": "gone.wav", "text": "x"}, r"sound names 'gone\.wav', which is no file"),
        ({"paths": ["gone.wav"], "text": "x"}, r"paths names 'gone\.wav'"),
        (
            {"image_url": "https://x.org/a.png?size=2", "text": "x"},
            r"image_url names 'https://x\.org/a\.png\?size=2', a web address.*download them, .*image: image_url",
        ),
        (
            {"image": "a.png", "prompt": "Say it.", "text": "x"},
            r"have prompt, which is not read: text alone .*\{prompt: prompt, completion: text\}",
        ),
        (
            {"image": "a.png", "instruction": "Say it.", "text": "x"},
            r"have instruction.*\{query: instruction, response: text\}",
        ),
        (
            {"image": "a.png", "text": "Is it red?", "label": "yes"},
            r"ask in text \('Is it red\?'\), which is what is learned, and have label, which is not read; .*"
            r"\{query: text, response: label\}",
        ),
        (
            {"image": "a.png", "question": "Say it.", "answer": ["A cat.", "One cat."]},
            r"lists of texts in answer, which are one answer, joined by commas; .*\{answers: answer\}",
        ),
        ({"question": "Which?", "answer": ["nokia", "Nokia"]}, r"lists of texts in answer"),
    ],
)
def test_what_may_be_meant_is_named_with_what_to_do(open_, rows, row, said):
    source = open_(rows(row, row))
    assert len(source) == 2
    [line] = remarks_of(source)
    assert line.startswith(f"{source.name}: its rows ")
    assert re.search(said, line), line


OFFERED = [{"candidates": ["A cat.", "A dog."]}, {"a0": "A cat.", "a1": "A dog."}, {"option 0": "A cat."}]


@pytest.mark.parametrize("more", OFFERED)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_question_beside_what_may_be_offered_stays_a_form_and_is_told(open_, rows, table, more, kind):
    several = [
        {"question": "What?", "answer": "A cat.", **dict.fromkeys(more)},
        {"question": "What?", "answer": "A cat.", **more},
    ]
    file = rows(*several) if kind == "jsonl" else table({k: [row[k] for row in several] for k in several[0]})
    source = open_(file)
    texts = [segment.text for segment in source.document(1).segments if isinstance(segment, Text)]
    assert texts == ["What?", "A cat."]
    [line] = remarks_of(source)
    column = next(iter(more))
    assert f"its rows have {column}, which is not read: question is all that is asked; if {column} is what" in line


@pytest.mark.parametrize(
    ("row", "given"),
    [
        ({"question": "What?", "answer": "x", "a0": None, "a1": None}, {}),
        ({"question": "What?", "answer": "x", "a0": "x"}, {"columns": {"query": "question", "response": "answer"}}),
        ({"question": "What?", "answer": "x", "a0": "x"}, {"template": "{question} {a0} → {answer}"}),
        ({"messages": [{"role": "assistant", "content": "x"}], "question": "What?", "answer": "x", "a0": "x"}, {}),
        ({"question": "What?", "answer": "A", "candidates": ["x", "y"]}, {"asked": True, "choices": True}),
    ],
)
def test_what_is_offered_to_nobody_or_is_shown_is_not_told(open_, rows, row, given):
    assert list(remarks_of(open_(rows(row), **given))) == []


@pytest.mark.parametrize(
    "row",
    [
        {"source": "book.txt", "text": "x"},
        {"text": "b.wav"},
        {"note": "see b.wav\nand others.wav", "text": "x"},
        {"prompt": "Say it.", "text": "x"},
        {"image": "a.png", "prompt": "", "text": "x"},
        {"image": "a.png", "text": "A cat.", "label": "cat"},
        {"image": "a.png", "text": "Is it red?", "label": None},
        {"text": "Is it red?", "label": "yes"},
        {"question": "Which?", "answer": ["nokia"]},
        {"question": "Which?", "answers": ["nokia", "Nokia"]},
        {"image": "a.png", "prompt": "Say it.", "completion": " x", "text": "y"},
        {"image": "a.png", "question": "What?", "messages": [{"role": "user", "content": "x"}], "text": "y"},
    ],
)
def test_what_is_read_or_means_something_else_is_not(open_, rows, row):
    assert list(remarks_of(open_(rows(row, row)))) == []


@pytest.mark.parametrize(
    ("row", "given", "path"),
    [
        ({"text": 1.10}, {}, "text"),
        ({"question": "How much?", "answer": 1.10}, {}, "answer"),
        ({"question": "How much?", "answers": ["1.10", 1.10]}, {}, "answers"),
        ({"q": "How much?", "meta": {"sum": 1.10}}, {"template": "{q} → {meta.sum}"}, "meta.sum"),
        ({"q": "How much?", "meta": '{"sum": 1.10}'}, {"columns": {"query": "q", "response": "meta.sum"}}, "meta.sum"),
    ],
)
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_numbers_with_fractions_that_are_learned_are_told_once(open_, rows, row, given, path, name):
    file = rows({**row, path: "x"} if path in row else row, row, row)
    if name == "rows.json":
        lines = file.read_text().splitlines()
        file = file.with_name(name)
        file.write_text(f"[{','.join(lines)}]")
    [line] = remarks_of(open_(file, **given))
    assert f"its rows have numbers in {path}, such as 1.1, which are learned as Python writes them: 1.10" in line


def test_other_numbers_are_not_told(open_, rows, table):
    for row, given in (
        ({"text": 1, "score": 0.5}, {}),
        ({"text": "1.10"}, {}),
        ({"text": True}, {}),
        ({"text": [1.5, 2.5]}, {}),
        ({"score": 0.5, "text": "a"}, {"template": "{score} → {text}"}),
        ({"text": 1.5}, {"asked": True}),
        ({"text": 1.5, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, {}),
    ):
        assert list(remarks_of(open_(rows(row), **given))) == []
    assert list(remarks_of(open_(table({"text": [1.5]})))) == []
