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
    ("key", "value", "meant"),
    [
        ("los", False, "loss"), ("wieght", 0, "weight"), ("Loss_Scale", 0.0, "loss_scale"), ("trian", False, "train"),
        ("mask", True, "loss"), ("no_loss", 1, "loss"), ("trainable", False, "loss"), ("loss_mask", 0, "loss"),
    ],
)  # fmt: skip
def test_a_key_that_was_to_leave_a_turn_out_and_is_not_read_costs_the_row(open_, rows, key, value, meant):
    said = rf"messages\[1\]\.{key}: no key of a turn; did you mean {meant}\? \"loss\": false leaves out what a turn"
    with pytest.raises(SampleError, match=said):
        open_(rows({"messages": [*chat("Q")[:1], {**ANSWER, key: value}]})).document(0)
    for other in ("text", None, 1 - value, 7):  # which leave nothing out
        assert taken(open_(rows({"messages": [*chat("Q")[:1], {**ANSWER, key: other}]})))


@pytest.mark.parametrize("key", "rating right lost less weights is_train train_id rain score height id model".split())
def test_other_keys_of_a_turn_are_none_of_ours(open_, rows, key):
    for value in (False, 0, 3, 0.5):
        assert taken(open_(rows({"messages": [*chat("Q")[:1], {**ANSWER, key: value}]})))


@pytest.mark.parametrize("typo", ["txt", "texts", "Text", "tetx"])
def test_a_part_of_text_whose_type_is_mistyped_is_no_medium(open_, rows, typo):
    chats = [[user({"type": typo, "text": "What is this?"}), ANSWER], chat("Q")]
    source = open_(rows(*({"messages": turns} for turns in chats)))
    with pytest.raises(SampleError, match=rf"messages\[0\]\.content\[0\]: unknown type '{typo}'; did you mean text\?"):
        source.document(0)


@pytest.mark.parametrize("text", ["Q", "<image>Q", "<image><image>Q"])
def test_other_media_under_both_spellings_of_their_column_are_told(open_, rows, text, tmp_path):
    (tmp_path / "c.png").write_bytes(b"picture")
    both = {"messages": chat(text), "image": "c.png", "images": ["a.png"]}
    source = open_(rows(both, {"messages": chat("Q")}))
    with pytest.raises(SampleError, match=r"image and images both hold media; keep one, or name it: columns\.image"):
        source.document(0)
    named = open_(rows({**both, "messages": chat("<image>Q")}), columns={"image": "images"})
    assert taken(named) == ["a.png", "Q", ANSWER["content"]]


@pytest.mark.parametrize("single", ["a.png", "000123", 7, ["a.png"], "A cat. It meows"])
def test_what_is_no_other_medium_beside_those_of_a_chat_is_passed_over(open_, rows, single):
    row = {"messages": chat("<image>Q"), "image": single, "images": ["a.png"]}
    assert taken(open_(rows(row))) == ["a.png", "Q", ANSWER["content"]]


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
