"""Templates: the layout of a document as one string."""

from __future__ import annotations

import pytest

from kosmos.data.document import Text
from kosmos.data.sources.template import parse_template
from kosmos.errors import ConfigError, DataError, SampleError

ROW = {
    "image": "a.png",
    "photo": ["a.png", "a.png"],
    "question": "Which digit?",
    "answer": "two",
    "answers": {"text": ["2", "two"], "votes": [7, 3]},
    "objects": {"bbox": [[1, 2.5, 3, 4]]},
    "n": 5,
    "none": None,
}


@pytest.fixture
def fill(tmp_path):
    (tmp_path / "a.png").write_bytes(b"picture")

    def filled(template, columns=None, row=ROW):
        layout = parse_template(template, ("image", "audio"), columns or {})
        segments = layout.segments(row, tmp_path)
        return [(s.text, s.train) if isinstance(s, Text) else s.modality for s in segments]

    return filled


CASES = {
    "[image] Question: {question} Answer: → {answer}": [
        "image",
        ("Question: Which digit? Answer:", False),
        (" two", True),
    ],
    "[image] → {answer}": ["image", ("two", True)],
    "{question} => {answer}": [("Which digit?", False), (" two", True)],
    "{question}→{answer}": [("Which digit?", False), ("two", True)],
    "{question}\nA:\n → {answer}.": [("Which digit?\nA:\n", False), ("two.", True)],
    "{question} {answer}": [("Which digit? two", True)],
    "[image:photo] {answers.text[0]} of {answers.votes} → {answers.text[-1]}": [
        "image",
        "image",
        ("2 of 7, 3", False),
        (" two", True),
    ],
    "[image:photo[0]]{answers.votes[0]} [image:photo[-1]] → {answer}": ["image", ("7", False), "image", ("two", True)],
    "before [image] after → {n} at {objects.bbox[0]}": [
        ("before", False),
        "image",
        ("after", False),
        (" 5 at 1, 2.5, 3, 4", True),
    ],
    "[BEGIN] [[image] {{x}} {n} → [DONE]": [("[BEGIN] [image] {x} 5", False), (" [DONE]", True)],
    "a = b => {n}": [("a = b", False), (" 5", True)],
}


@pytest.mark.parametrize("template", CASES)
def test_template_gives_segments(fill, template):
    assert fill(template) == CASES[template]


def test_columns_rename_what_a_template_names(fill):
    columns = {"image": "photo", "text": "answers.text[1]"}
    assert fill("[image] → {text}", columns) == ["image", "image", ("two", True)]


@pytest.mark.parametrize(
    ("template", "cause"),
    [
        ("[imgae] → {answer}", r"\[imgae\] is no installed modality; did you mean image\?"),
        ("[video] → {answer}", r"\[video\] is no installed modality; there are: audio, image"),
        ("{n} → b → c", "more than one →"),
        ("qwen", r"names no column .*how turns of chats are spelled stands in tokenizer\.turns"),
        ("[image] → [image]", "no text behind the →"),
        ("[image]", "no text in it"),
        ("{question} → ", "no text behind the →"),
        ("{question} -> {answer}", r"'->' is text; write → or => where the answer begins"),
        ("[image {question} → {answer}", r"'\[image' without its \]; write \[\[ for a bracket"),
        ("{question → x", r"'\{' without its partner"),
        ("a } b", r"'\}' without its partner"),
        ("{} x", "without its partner"),
        ("{answers..text} x", "expected a name such as"),
        ("{[0]} x", "expected a name such as"),
    ],
)
def test_wrong_template_is_one_line(fill, template, cause):
    with pytest.raises(ConfigError, match=cause) as caught:
        fill(template)
    assert "\n" not in caught.value.line()


@pytest.mark.parametrize(
    ("template", "cause"),
    [
        ("{missing} x", "no column 'missing'"),
        ("{answers.txt} x", "no column 'answers.txt'; did you mean text?"),
        ("{answers.text[9]} x", r"\[9\] of a list of 2"),
        ("{question[0]} x", r"\[0\] needs a list, got a string"),
        ("{none} x", "none: expected text, got null"),
        ("[image:none] x", "none: holds no image"),
    ],
)
def test_row_without_what_the_template_names_costs_itself(fill, template, cause):
    with pytest.raises(SampleError, match=cause):
        fill(template)


def test_empty_answer_costs_its_row(fill):
    with pytest.raises(SampleError, match="no text behind the arrow"):
        fill("{question} → {answer}", row={"question": "q", "answer": ""})


def test_unknown_column_is_an_error_at_opening_with_the_nearest_name(open_, rows):
    path = rows({"question": "q", "answer": "a"})
    with pytest.raises(DataError, match=r"rows.jsonl:1: template: no column 'awnser'; did you mean answer\?"):
        open_(path, template="{question} → {awnser}")


def test_benchmark_with_a_template(open_, shared_data):
    template = "Question: {query}\nAnswer: → {answer}"
    source = open_(shared_data("bench") / "gsm8k.jsonl", template=template, held_out=0.05)
    question, answer = source.document(0).segments
    assert question.text.startswith("Question: ")
    assert question.text.endswith("\nAnswer:")
    assert (question.train, answer.train, answer.text[0]) == (False, True, " ")
    assert len(source) == 1319 - 66


def test_class_folders_with_a_template(open_, rows, tmp_path):
    rows(name="set/cat/x.jsonl").unlink()
    (tmp_path / "set" / "cat" / "b.wav").unlink()
    document = open_(tmp_path / "set", template="[image] The photo of the → {text}").document(0)
    assert document.segments[1:] == (Text("The photo of the"), Text(" cat", train=True))
