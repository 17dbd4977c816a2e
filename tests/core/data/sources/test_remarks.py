"""What rows have that is not read though it may be meant is said once, and costs no row."""

from __future__ import annotations

import re

import pytest

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
    ],
)
def test_what_may_be_meant_is_named_with_what_to_do(open_, rows, row, said):
    source = open_(rows(row, row))
    assert len(source) == 2
    [line] = remarks_of(source)
    assert line.startswith(f"{source.name}: its rows ")
    assert re.search(said, line), line


@pytest.mark.parametrize(
    "row",
    [
        {"source": "book.txt", "text": "x"},
        {"text": "b.wav"},
        {"note": "see b.wav\nand others.wav", "text": "x"},
        {"prompt": "Say it.", "text": "x"},
        {"image": "a.png", "prompt": "", "text": "x"},
        {"image": "a.png", "prompt": "Say it.", "completion": " x", "text": "y"},
        {"image": "a.png", "question": "What?", "messages": [{"role": "user", "content": "x"}], "text": "y"},
    ],
)
def test_what_is_read_or_means_something_else_is_not(open_, rows, row):
    assert list(remarks_of(open_(rows(row, row)))) == []
