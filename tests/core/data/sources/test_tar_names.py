"""Files of a sample of an archive, as its ``.json`` names them, in their places between texts."""

from __future__ import annotations

import json

import pytest

from kosmos.data.document import Text
from kosmos.errors import SampleError

from .test_tar import pack, segments

PICTURES = ("1.0.jpg", b"zero"), ("1.1.jpg", b"one")
A, ZERO, B, ONE = Text("A", train=True), ("image", b"zero"), Text("B", train=True), ("image", b"one")


def sample(tmp_path, row, *files, key="1"):
    named = [(f"{key}{name[1:]}", content) for name, content in files or PICTURES]
    return pack(tmp_path / "a.tar", (f"{key}.json", json.dumps(row).encode()), *named)


@pytest.mark.parametrize("key", ["1", "shard/1"])
@pytest.mark.parametrize("folder", ["", "./", "shard/"])
def test_texts_and_media_in_turn(open_, tmp_path, key, folder):
    names = [f"{folder if key != '1' or folder == './' else ''}1.{n}.jpg" for n in range(2)]
    row = {"texts": ["A", None, "B", None], "images": [None, names[1], "", names[0]]}
    assert segments(open_(sample(tmp_path, row, key=key))) == [A, ONE, B, ZERO]


def test_segments(open_, tmp_path):
    row = {"segments": [{"text": "A"}, {"image": "1.1.jpg"}, {"text": "B"}, {"image": {"path": "1.0.jpg"}}]}
    assert segments(open_(sample(tmp_path, row))) == [A, ONE, B, ZERO]


def test_a_column_that_is_named(open_, tmp_path):
    row = {"words": ["A", None, "B", None], "pictures": [None, "1.0.jpg", None, "1.1.jpg"]}
    source = open_(sample(tmp_path, row), columns={"texts": "words", "image": "pictures"})
    assert segments(source) == [A, ZERO, B, ONE]


def test_texts_alone_beside_a_sample_with_media(open_, tmp_path):
    row = {"texts": ["A", "B"], "images": [None, None]}
    assert segments(open_(sample(tmp_path, row, ("1.cls", b"1")))) == [A, Text("\nB", train=True)]


def test_parts_of_a_chat_that_name_their_media_and_others_that_do_not(open_, tmp_path):
    parts = [{"type": "image", "image": "1.1.jpg"}, {"type": "text", "text": "B"}, {"type": "image"}]
    turns = [{"role": "user", "content": parts}, {"role": "assistant", "content": "A"}]
    found = segments(open_(sample(tmp_path, {"messages": turns})))
    assert found == [ONE, Text("B"), ZERO, A]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"texts": ["A", None], "images": [None, "2.0.jpg"]}, "holds .0.jpg, .1.jpg, which images does not name"),
        ({"texts": ["A", None], "images": [None, "1.0.jpg"]}, "holds .1.jpg, which images does not name"),
        (
            {"segments": [{"text": "A"}, {"image": "2.0.jpg"}]},
            r"2.0.jpg: no file of the sample, which holds .0.jpg, .1.jpg; .*/2.0.jpg: no such file$",
        ),
        ({"segments": [{"text": "A"}, {"image": "../1.0.jpg"}]}, "refused"),
        ({"segments": [{"text": "A"}, {"image": "/etc/1.0.jpg"}]}, "refused"),
        ({"segments": [{"text": "A"}, {"image": "1.json"}]}, "no file of the sample"),
    ],
)
def test_no_other_files_can_be_named(open_, tmp_path, row, says):
    path = pack(
        tmp_path / "a.tar",
        ("1.json", json.dumps(row).encode()), *PICTURES, ("2.0.jpg", b"another's"), ("2.txt", b"two"),
    )  # fmt: skip
    with pytest.raises(SampleError, match=says):
        open_(path, where="data.sources.0").document(0)


def test_an_empty_file_that_is_named_costs_its_sample(open_, tmp_path):
    row = {"segments": [{"text": "A"}, {"image": "1.0.jpg"}]}
    with pytest.raises(SampleError, match="medium of zero bytes"):
        open_(sample(tmp_path, row, ("1.0.jpg", b""))).document(0)


def test_a_run_that_began_before_files_were_named_goes_on_so(open_, tmp_path):
    source = open_(sample(tmp_path, {"texts": ["A", None, "B", None], "images": [None, "1.0.jpg", None, "1.1.jpg"]}))
    source.reads_more = False
    with pytest.raises(SampleError, match="texts has 4 places and image 2"):
        source.document(0)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"content": "<image>What is its name?"}, "1.jpg"),
        ({"content": "What?", "file": "1.jpg"}, "A"),
        ({"content": [{"type": "text", "text": "What?", "source": "1.jpg"}]}, "A"),
        ({"content": [{"type": "image"}, {"type": "text", "text": "1.jpg"}]}, "A"),
    ],
)
def test_a_text_that_is_the_name_of_a_file_takes_no_medium_away(open_, tmp_path, asked, says):
    turns = [{"role": "user", **asked}, {"role": "assistant", "content": says}]
    found = segments(open_(sample(tmp_path, {"messages": turns}, ("1.jpg", b"one"))))
    assert found[0] == ONE and found[-1] == Text(says, train=True)
    assert found.count(ONE) == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"content": "What?", "images": ["1.jpg"]},
        {"content": "What?", "image": {"path": "1.jpg"}},
        {"content": [{"type": "image_url", "image_url": {"url": "1.jpg"}}, {"type": "text", "text": "What?"}]},
        {"content": [{"type": "image", "path": "1.jpg"}, {"type": "text", "text": "What?"}]},
    ],
)
def test_a_medium_that_a_turn_names_stands_there_alone(open_, tmp_path, asked):
    turns = [{"role": "user", **asked}, {"role": "assistant", "content": "A"}]
    assert segments(open_(sample(tmp_path, {"messages": turns}, ("1.jpg", b"one")))) == [ONE, Text("What?"), A]
