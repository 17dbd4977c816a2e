"""Chats in the form of the OpenAI API."""

from __future__ import annotations

import pytest

from kosmos.data.document import Mark, Text
from kosmos.errors import DataError, SampleError

ANSWER = {"role": "assistant", "content": "A cat that meows."}


def user(*parts):
    return {"role": "user", "content": list(parts)}


def test_loss_looks_at_the_assistant_alone(open_, rows):
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}, ANSWER]
    assert open_(rows({"messages": chat})).document(0).segments == (
        Mark("<|system|>"),
        Text("Be short."),
        Mark("<|end|>"),
        Mark("<|user|>"),
        Text("Hi"),
        Mark("<|end|>"),
        Mark("<|assistant|>"),
        Text("A cat that meows.", train=True),
        Mark("<|end|>", train=True),
    )


def test_parts_of_image_and_audio_in_every_spelling(open_, rows):
    chat = user(
        {"type": "text", "text": "What is"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
        {"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "wav"}},
        {"type": "image", "image": "a.png"},
        {"type": "audio", "path": "b.wav"},
        {"type": "input_image", "image_url": "a.png"},
        {"type": "input_text", "text": "this?"},
    )
    found = open_(rows({"messages": [chat, ANSWER]})).document(0).segments[1:8]
    assert found[0] == Text("What is")
    assert found[6] == Text("this?")
    media = [(m.modality, getattr(m.source, "name", m.source)) for m in found[1:6]]
    assert media == [
        ("image", b"hello"),
        ("audio", b"hello"),
        ("image", "a.png"),
        ("audio", "b.wav"),
        ("image", "a.png"),
    ]


def test_part_without_a_medium_takes_the_next_of_the_row(open_, rows):
    chat = [user({"type": "image"}, {"type": "image"}), ANSWER]
    document = open_(rows({"messages": chat, "images": ["a.png", "data:;base64,aGVsbG8="]})).document(0)
    assert [getattr(m.source, "name", m.source) for m in document.media] == ["a.png", b"hello"]
    source = open_(rows({"messages": chat, "images": ["a.png"]}))
    with pytest.raises(SampleError, match=r"the row has none \(left\) in images"):
        source.document(0)


def test_urls_in_chats_are_refused(open_, rows):
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    source = open_(rows({"messages": [user(part), ANSWER]}))
    with pytest.raises(SampleError, match="URLs of kind 'https' are never opened"):
        source.document(0)


def test_parts_of_other_modalities_leave_the_row_out(open_, rows):
    part = {"type": "video_url", "video_url": {"url": "a.mp4"}}
    source = open_(rows({"messages": [user(part), ANSWER]}, {"text": "x"}))
    assert (len(source), source.left_out) == (1, {"video": 1})
    lidar = {"messages": [user({"type": "input_lidar", "input_lidar": "a.bin"}), ANSWER]}
    with pytest.raises(DataError, match="install the plugin for lidar"):
        open_(rows(lidar))


BAD = [
    ([user({"type": "text", "text": "hi"})], "no turn of the assistant"),
    ([{"role": "robot", "content": "x"}], r"messages\[0\].role: unknown role 'robot'"),
    ([{"role": ["user"], "content": "x"}], r"messages\[0\].role: unknown role"),
    ([{"role": "user", "content": 3}], r"messages\[0\].content: expected text or a list of parts, got a number"),
    ([{"role": "user"}], "got null"),
    ([user({"text": "x"})], r"messages\[0\].content\[0\]: expected an object with a type"),
    ([user({"type": "text", "text": None}), ANSWER], "expected text, got null"),
    (["hi"], r"messages\[0\]: expected an object, got a string"),
]


@pytest.mark.parametrize(("chat", "cause"), BAD)
def test_malformed_chat_costs_that_row_alone(open_, rows, chat, cause):
    source = open_(rows({"messages": chat}, {"messages": [user({"type": "text", "text": "q"}), ANSWER]}))
    with pytest.raises(SampleError, match=cause):
        source.document(0)
    assert len(source.document(1).segments) == 6
