"""Rows of several media of which some are not there: bad samples, or documents without these."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.page_document import PageDocument
from kosmos.errors import ConfigError, SampleError

from .test_forms import said
from .test_tar import pack

LEAVE_OUT = {"missing_media": "leave_out"}
ASKED = {"role": "user", "content": "How many?"}
NO_SUCH = "gone.png: no such file"


@pytest.fixture
def pictures(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"\x89PNG")


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"texts": ["One", None, "two", None, "three"], "images": [None, "gone.png", None, "a.png", None]},
            "[One] [\ntwo] <image> [three]",
        ),
        ({"texts": [None, "two", None], "images": ["gone.png", None, "a.png"]}, "[two] <image>"),
        ({"texts": ["One", None, None], "images": [None, "a.png", "data:;base64,"]}, "[One] <image>"),
        (
            {"segments": [{"text": "One "}, {"image": "gone.png"}, {"text": " two "}, {"image": "a.png"}]},
            "[One ] [ two ] <image>",
        ),
        ({"image": ["a.png", "gone.png", "b.png"], "text": "three"}, "<image> <image> [three]"),
        ({"image": ["gone.png"], "audio": "a.png", "text": "heard"}, "<audio> [heard]"),
    ],
)
def test_media_that_are_not_there_are_left_out_of_documents_of_several(open_, rows, row, expected):
    with pytest.raises(SampleError, match=r"no such file|base64 data is empty"):
        open_(rows(row)).document(0)
    source = open_(rows(row), options=LEAVE_OUT)
    assert said(source) == expected
    assert [NO_SUCH in cause or "base64 data is empty" in cause for cause in source.document(0).lost] == [True]


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            {"texts": ["One", None, None], "images": [None, "gone.png", "too.png"]},
            "none of its 2 media can be used; the",
        ),
        ({"image": "gone.png", "text": "one"}, f"{NO_SUCH}; if the media are in another folder .* data.sources.0.root"),
        ({"image": ["a.png", "gone.png"], "query": "Which?", "response": "This."}, NO_SUCH),
        ({"image": ["a.png", "gone.png"], "messages": [ASKED, {"role": "assistant", "content": "Two."}]}, NO_SUCH),
        ({"image": ["a.png", "gone.png"], "prompt": "A", "completion": "B"}, NO_SUCH),
        ({"image": ["a.png", "gone.png"], "prompt": "A", "chosen": "B", "rejected": "C"}, NO_SUCH),
        ({"image": ["a.png", "b.PNG"], "text": "one"}, "no such file; there is b.png"),
        ({"image": ["a.png", "http://x.org/a.png"], "text": "one"}, "never opened"),
        ({"image": ["a.png", "../a.png"], "text": "one"}, "'..' is refused"),
    ],
)
def test_what_cannot_do_without_its_media_stays_a_bad_sample(open_, rows, row, says):
    source = open_(rows(row), options=LEAVE_OUT, where="data.sources.0")
    with pytest.raises(SampleError, match=says):
        source.document(0)


def test_rows_that_lack_nothing_are_as_they_are_without_the_option(open_, rows):
    rows = rows({"texts": ["just", "text"]}, {"text": "one"}, {"query": "a", "response": "b"})
    plain, sparing = open_(rows), open_(rows, options=LEAVE_OUT)
    assert [said(plain, index) for index in range(3)] == [said(sparing, index) for index in range(3)]
    assert [isinstance(sparing.document(index), PageDocument) for index in range(3)] == [True, True, False]
    assert not isinstance(plain.document(0), PageDocument)


def test_empty_files_of_archives_and_those_that_are_not_in_them(open_, tmp_path):
    row = {"texts": ["A", None, None, None], "images": [None, "1.0.jpg", "1.1.jpg", "1.2.jpg"]}
    path = pack(tmp_path / "a.tar", ("1.json", json.dumps(row).encode()), ("1.0.jpg", b""), ("1.1.jpg", b"one"))
    source = open_(path, options=LEAVE_OUT)
    (medium,) = source.document(0).media
    assert medium.load().source == b"one"
    empty, absent = source.document(0).lost
    assert empty == "image: medium of zero bytes" and "no file of the sample" in absent


def test_bytes_of_nothing_are_lost_where_nothing_else_stands(open_, tmp_path):
    table = pa.table({"texts": [["One", None, "two", None]], "images": [[b"", b"\x89PNG", b"", b""]]})
    pq.write_table(table, tmp_path / "rows.parquet")
    source = open_(tmp_path / "rows.parquet", options=LEAVE_OUT)
    assert (said(source), source.document(0).lost) == ("[One] <image> [two]", ("image: medium of zero bytes",))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"template": "[image] → {text}"}, "missing_media: a template has a place for each medium"),
        ({"choices": True}, "missing_media: a question needs each medium"),
    ],
)
def test_it_is_refused_where_no_medium_can_be_left_out(open_, rows, asked, says):
    with pytest.raises(ConfigError, match=f"^data.sources.0.options.{says}; it is of rows of texts and media in turn"):
        open_(rows({"image": "a.png", "text": "a"}), options=LEAVE_OUT, where="data.sources.0", **asked)


def test_it_is_refused_of_a_folder_of_media(open_, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.png").write_bytes(b"x")
    (tmp_path / "set" / "a.txt").write_text("a cat")
    with pytest.raises(ConfigError, match="missing_media: a file of a folder is all that its text is of"):
        open_(tmp_path / "set", options=LEAVE_OUT)
    with pytest.raises(ConfigError, match=r"options.missing_media: expected bad_sample or leave_out, got 'skip'"):
        open_(tmp_path / "set", options={"missing_media": "skip"})


def test_which_rows_are_cut_where_they_are_long(open_, rows):
    pages = [
        {"texts": ["One", None], "images": [None, "a.png"]},
        {"segments": [{"text": "One"}, {"image": "a.png"}]},
        {"image": ["a.png", "a.png"], "text": "One"},
    ]
    others = [{"image": "a.png", "query": "One", "response": "two"}, {"text": "One", "image": "gone.png"}]
    source = open_(rows(*pages, *others), options={"long_documents": "cut"})
    found = [source.document(index) for index in range(4)]
    assert [getattr(document, "is_cut", False) for document in found] == [True, True, True, False]
    assert [getattr(document, "between", None) for document in found] == [None] * 4
    with pytest.raises(SampleError, match=NO_SUCH):  # which is another option
        source.document(4)
    with pytest.raises(ConfigError, match=r"options\.long_documents: a template has a place for each medium"):
        open_(rows(*pages), template="[image] {text}", options={"long_documents": "cut"})
