"""Rows as Alpaca, ms-swift, TRL and The Cauldron have them."""

from __future__ import annotations

import pytest

from kosmos.data.document import Mark, Media, Text
from kosmos.errors import DataError, SampleError


def said(source, index=0):
    """A document in short: marks, media by modality, text with what is learned in brackets."""
    found = []
    for part in source.document(index).segments:
        match part:
            case Mark(name=name):
                found.append(name)
            case Media(modality=modality):
                found.append(f"<{modality}>")
            case Text(text, train):
                found.append(f"[{text}]" if train else text)
    return " ".join(found)


def test_alpaca(open_, rows):
    source = open_(rows({"instruction": "Add.", "input": "1 + 1", "output": "2"}))
    assert said(source) == "<|user|> Add.\n1 + 1 <|end|> <|assistant|> [2] <|end|>"


def test_alpaca_with_history_system_and_a_placed_picture(open_, rows):
    row = {
        "instruction": "<image>And this?",
        "input": "",
        "output": "A dog.",
        "system": "Be brief.",
        "history": [["Hi", "Hello"]],
        "images": ["a.png"],
    }
    assert said(open_(rows(row))) == (
        "<|system|> Be brief. <|end|> <|user|> Hi <|end|> <|assistant|> [Hello] <|end|> "
        "<|user|> <image> And this? <|end|> <|assistant|> [A dog.] <|end|>"
    )


def test_swift_with_media_that_no_text_places(open_, rows):
    row = {"query": "What is it?", "response": "A cat.", "images": ["a.png", "a.png"], "audio": "b.wav"}
    assert said(open_(rows(row))) == (
        "<|user|> <image> <image> <audio> What is it? <|end|> <|assistant|> [A cat.] <|end|>"
    )


@pytest.mark.parametrize("content", ["What?", [{"type": "text", "text": "What?"}]], ids=["text", "parts"])
def test_media_that_no_turn_of_a_chat_places_begin_what_is_asked_first(open_, rows, content):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    for answer in ("A cat.", "A cat."):
        chat += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And?"}]
    source = open_(rows({"audio": "b.wav", "images": ["a.png", "a.png"], "messages": chat[:-1]}))
    assert said(source) == (
        "<|system|> Be brief. <|end|> <|user|> <audio> <image> <image> What? <|end|> <|assistant|> [A cat.] <|end|> "
        "<|user|> And? <|end|> <|assistant|> [A cat.] <|end|>"
    )


def test_a_place_for_a_medium_that_the_row_lacks_is_none_for_another(open_, rows):
    asked, answered = ({"query": "<video>What?", "response": "A cat."}, {"query": "Write it.", "response": "<video>"})
    assert said(open_(rows({**answered, "image": "a.png"}))).startswith("<|user|> <image> Write it. <|end|>")
    with pytest.raises(SampleError, match="image holds 1 medium, 0 placed"):
        open_(rows({**asked, "image": "a.png"})).document(0)


def test_question_and_answer(open_, rows):
    source = open_(rows({"image": "a.png", "question": "What is it?", "answer": "A cat.", "id": 7}))
    assert said(source) == "<|user|> <image> What is it? <|end|> <|assistant|> [A cat.] <|end|>"


@pytest.mark.parametrize("more", [
    {"context": "It rained."}, {"choices": ["A cat.", "A dog."]}, {"A": "A cat.", "B": "A dog."}, {"hint": "A tail."},
    {"option_a": "A cat."}, {"story": "It rained."}, {"text": "A caption."},
])  # fmt: skip
def test_a_question_is_no_form_beside_what_belongs_to_it(open_, rows, more):
    row = {"image": "a.png", "question": "What is it?", "answer": "A cat.", **more}
    if "text" in more:  # which is learned, as it always was
        assert said(open_(rows(row))) == "<image> [A caption.]"
    else:
        with pytest.raises(
            DataError,
            match=r"a question and its answer are columns: {query: question, (input: \w+, )?response: answer}",
        ):
            open_(rows(row))


def test_cauldron(open_, rows):
    texts = [{"user": "What?", "assistant": "A cat.", "source": "x"}, {"user": "And?", "assistant": "It sleeps."}]
    assert said(open_(rows({"images": ["a.png"], "texts": texts}))) == (
        "<|user|> <image> What? <|end|> <|assistant|> [A cat.] <|end|> "
        "<|user|> And? <|end|> <|assistant|> [It sleeps.] <|end|>"
    )


def test_prompt_and_completion(open_, rows):
    source = open_(rows({"image": "a.png", "prompt": "It is ", "completion": "blue."}))
    assert said(source) == "<image> It is  [blue.]"


def test_columns_name_question_and_answer(open_, rows):
    row = {"picture": "a.png", "question": "What?", "answers": {"text": ["A cat."]}}
    columns = {"image": "picture", "instruction": "question", "output": "answers.text[0]"}
    assert said(open_(rows(row), columns=columns)) == ("<|user|> <image> What? <|end|> <|assistant|> [A cat.] <|end|>")
    with pytest.raises(DataError, match=r"columns.output: no column 'answer'; did you mean answers\?"):
        open_(rows(row), columns={**columns, "output": "answer"})


def test_a_text_that_is_named_goes_first(open_, rows):
    row = {"instruction": "Add.", "output": "2", "text": "Add. 2"}
    assert said(open_(rows(row), columns={"text": "text"})) == "[Add. 2]"
    assert said(open_(rows(row))) == "<|user|> Add. <|end|> <|assistant|> [2] <|end|>"


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ({"instruction": "Add.", "output": ""}, "output is empty"),
        ({"instruction": "Add.", "output": None}, "output: expected text, got null"),
        ({"instruction": ["Add."], "output": {}}, "output: expected text, got an object"),
        ({"instruction": "Add.", "input": {}, "output": "2"}, "input: expected text, got an object"),
        ({"instruction": "Add.", "output": "2", "history": "x"}, "history: expected a list of pairs, got a string"),
        ({"instruction": "Add.", "output": "2", "history": [["x"]]}, r"history\[0\]: expected a list of two"),
        ({"instruction": "<image>Add.", "output": "2", "images": []}, "the row has none in images"),
        ({"instruction": "<image>Add.", "output": "2", "images": ["a.png"] * 2}, "images holds 2 media, 1 placed"),
        ({"query": "Add.", "response": " "}, "response is empty"),
        ({"prompt": ["x"], "completion": []}, "completion: expected text, got an empty list"),
        ({"texts": []}, "texts: expected a list that is not empty, got an empty list"),
        ({"texts": [1]}, r"texts\[0\]: expected an object with user and assistant, got a number"),
        ({"texts": [{"user": "x"}]}, r"texts\[0\].assistant: expected text, got null"),
        ({"texts": [{"user": "x", "assistant": ""}]}, r"texts\[0\].assistant is empty"),
        ({"texts": [{"user": "x", "assistant": "y"}, {"user": "x", "assistant": " "}]}, r"texts\[1\].assistant is"),
        (
            {"query": "Add.", "response": "2", "history": [["x", "y"], ["x", ""]]},
            r"history\[1\]\[1\] is empty; write it, or",
        ),
        ({"sentence": "x", "segment": ""}, r"; if that is sentence: columns: \{text: sentence\}"),
        ({"query": "Add."}, "no 'text'; no 'response' beside 'query'"),
        ({"output": "2"}, "no 'text'; no 'instruction' beside 'output'"),
        ({"instruction": "Add.", "text": None}, "text: expected text, got null"),
    ],
)
def test_a_row_that_is_wrong_costs_itself(open_, rows, row, cause):
    source = open_(rows(row, {"text": "good"}))
    with pytest.raises(SampleError, match=cause):
        source.document(0)
    assert said(source, 1) == "[good]"


def test_a_row_with_a_picture_is_left_out_of_a_run_without(open_, rows):
    form = {"instruction": "What?", "output": "A cat."}
    source = open_(rows({**form, "images": ["a.png"]}, form), modalities=("audio",))
    assert (len(source), source.left_out) == (1, {"image": 1})


@pytest.mark.parametrize(
    "row",
    [
        {"instruction": "What?", "output": "A word."},
        {"messages": [{"role": "user", "content": "<audio>What?"}, {"role": "assistant", "content": "A word."}]},
        {"prompt": "What? ", "completion": "A word."},
    ],
)
def test_a_clip_is_of_the_media_of_the_row(open_, rows, row):
    source = open_(rows({**row, "audios": ["b.wav"], "clip": [0.5, 1.0]}))
    assert [medium.clip for medium in source.document(0).media] == [(0.5, 1.0)]
