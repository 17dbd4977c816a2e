"""Which turns of a chat are learned, and keys and parts of turns that are mistyped."""

from __future__ import annotations

import pytest

from kosmos.data.document import Mark, Text
from kosmos.data.marks import END
from kosmos.errors import ConfigError, SampleError

ANSWER = {"role": "assistant", "content": "A cat that meows."}


def chat(*texts):
    return [*({"role": "user", "content": text} for text in texts), ANSWER]


def user(*parts):
    return {"role": "user", "content": list(parts)}


def taken(source, index=0):
    """The texts and media of a document, marks left out."""
    found = source.document(index).segments
    return [s.text if isinstance(s, Text) else s.source.name for s in found if not isinstance(s, Mark)]


@pytest.mark.parametrize(
    ("key", "meant"), [("los", "loss"), ("wieght", "weight"), ("mask", "loss"), ("Loss_Scale", "loss_scale")]
)
def test_a_key_that_was_to_leave_a_turn_out_and_is_mistyped_costs_the_row(open_, rows, key, meant):
    said = rf"messages\[1\]\.{key}: no key of a turn; did you mean {meant}\? \"loss\": false leaves out what a turn"
    for value in (False, 0, 1.0):
        with pytest.raises(SampleError, match=said):
            open_(rows({"messages": [*chat("Q")[:1], {**ANSWER, key: value}]})).document(0)
    for other in ({key: "text"}, {"id": 3, "name": "x", "score": 0.5, "time": 3.5, "model": "x"}):
        assert taken(open_(rows({"messages": [*chat("Q")[:1], {**ANSWER, **other}]})))


@pytest.mark.parametrize("typo", ["txt", "texts", "Text", "tetx"])
def test_a_part_of_text_whose_type_is_mistyped_is_no_medium(open_, rows, typo):
    chats = [[user({"type": typo, "text": "What is this?"}), ANSWER], chat("Q")]
    source = open_(rows(*({"messages": turns} for turns in chats)))
    with pytest.raises(SampleError, match=rf"messages\[0\]\.content\[0\]: unknown type '{typo}'; did you mean text\?"):
        source.document(0)


@pytest.mark.parametrize("text", ["Q", "<image>Q", "<image><image>Q"])
def test_media_under_both_spellings_of_their_column_are_told(open_, rows, text):
    both = {"messages": chat(text), "image": "a.png", "images": ["a.png"]}
    source = open_(rows(both, {"messages": chat("Q")}))
    with pytest.raises(SampleError, match=r"image and images both hold media; keep one, or name it: columns\.image"):
        source.document(0)
    named = open_(rows({**both, "messages": chat("<image>Q")}), columns={"image": "images"})
    assert taken(named) == ["a.png", "Q", ANSWER["content"]]


def test_the_last_answer_alone_is_learned_where_that_is_asked(open_, rows):
    turns = [*chat("Q"), *chat("And?")[:1], {**ANSWER, "content": "Two."}, *chat("So?")[:1]]
    forms = {
        "messages": {"messages": turns},
        "history": {"query": "And?", "response": "Two.", "history": [["Q", "A cat."]]},
        "texts": {"texts": [{"user": "Q", "assistant": "A cat."}, {"user": "And?", "assistant": "Two."}]},
    }
    for row in forms.values():
        for learn, expected in {"last": ["Two."], "all": [ANSWER["content"][:5], "Two."]}.items():
            segments = open_(rows(row), options={"learn": learn}).document(0).segments
            learned = [s.text for s in segments if isinstance(s, Text) and s.train]
            assert [text[:5] for text in learned] == [text[:5] for text in expected]
            assert sum(s == Mark(END, train=True) for s in segments) == len(expected)
    silent = {"messages": [*chat("Q"), *chat("And?")[:1], {**ANSWER, "loss": False}]}
    with pytest.raises(SampleError, match="no turn of the assistant with text to learn from"):
        open_(rows(silent), options={"learn": "last"}).document(0)
    with pytest.raises(ConfigError, match=r"options\.learn: expected all or last \(turns of the assist"):
        open_(rows(silent), options={"learn": "first"})
