"""What objects and lists of media say, and is not lost in silence."""

from __future__ import annotations

from typing import Any

import pytest

from kosmos.data.sources.since import opened_before
from kosmos.errors import SampleError
from kosmos.train.older_rules import as_begun
from kosmos.train.order import LATER, READ

PART = {"path": "a.png", "clip": [0, 0.5]}
OFFSET = {"path": "a.png", "offset": 0, "duration": 0.5}
TEXT = {"text": "x"}


@pytest.fixture
def rows(rows, tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"picture")
    return rows


def clips(source: Any) -> list[Any]:
    return [medium.clip for medium in source.document(0).media]


@pytest.mark.parametrize(
    "row",
    [
        {"image": PART, **TEXT},
        {"image": OFFSET, **TEXT},
        {"image": {"path": "a.png", "image_start": 0, "image_end": 0.5}, **TEXT},
        {"images": [{"image": PART}], **TEXT},
        {"images": [PART], **TEXT},
        {"segments": [{"image": PART}, TEXT]},
        {"segments": [{"image": OFFSET}, TEXT]},
        {"segments": [{"image": "a.png", "offset": 0, "duration": 0.5}, TEXT]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "image", "image": PART}]},
                {"role": "assistant", "content": "x"},
            ]
        },
    ],
)
def test_a_stretch_of_a_medium_without_time_reaches_its_processor_which_refuses_it(open_, rows, row):
    assert clips(open_(rows(row))) == [(0.0, 0.5)]


def test_a_stretch_that_is_none_is_a_bad_sample(open_, rows):
    with pytest.raises(SampleError, match=r"image: clip: expected 0 <= start < end, got \[55.0, 50.0\]"):
        open_(rows({"image": {"path": "a.png", "clip": [55, 50]}, **TEXT})).document(0)


@pytest.mark.parametrize("said", [{"duration": 3}, {"start": 1, "end": 2}, {"offset": 3}, {"clip": None}])
def test_what_may_be_of_something_else_is_passed_over(open_, rows, said):
    assert clips(open_(rows({"image": {"path": "a.png", **said}, **TEXT}))) == [None]


def test_an_object_within_one_says_which_stretch_is_meant(open_, rows):
    held = {"audio": {"path": "b.wav", "clip": [0, 1]}}
    assert clips(open_(rows({"audios": [held], **TEXT}))) == [(0.0, 1.0)]
    assert clips(open_(rows({"audios": [{**held, "clip": [2, 3]}], **TEXT}))) == [(2.0, 3.0)]


@pytest.mark.parametrize("row", [{"image": PART, **TEXT}, {"segments": [{"image": OFFSET}, TEXT]}])
def test_a_run_begun_before_reads_them_as_then(open_, rows, row):
    source = open_(rows(row))
    source.lacking = ("clips of objects",)
    assert clips(source) == [None]
    with opened_before(lacking=["clips of objects"]):
        assert len(open_(rows(row))) == 1


@pytest.mark.parametrize(
    ("noted", "lacking"), [(READ, ()), (READ[:-1], LATER[-1:]), (READ[: -len(LATER)], LATER), (None, LATER)]
)
def test_which_rules_a_run_lacks_is_told_by_what_it_notes(open_, rows, noted, lacking):
    source = open_(rows({"image": PART, **TEXT}))
    before = {"data": {"sources": []}} | ({} if noted is None else {"reads": noted})
    as_begun(before, [source])
    assert source.lacking == tuple(lacking)


def test_beside_a_medium_that_has_time_the_seconds_of_a_row_are_its_own(open_, rows):
    source = open_(rows({"image": "a.png", "audio": "b.wav", "offset": 1, "duration": 2, **TEXT}))
    assert clips(source) == [None, (1.0, 3.0)]
    assert source.remarks == ()


@pytest.mark.parametrize("names", [("offset", "duration"), ("image_start", "image_end")])
def test_seconds_of_a_row_whose_media_have_none_are_told(open_, rows, names):
    (line,) = open_(rows({"image": "a.png", **dict(zip(names, (0, 0.5), strict=True)), **TEXT})).remarks
    assert line.startswith(f"its rows have {names[0]} and {names[1]}, which are not read, as image has no seconds")


def test_nulls_before_media_are_passed_over_and_told_where_rows_differ(open_, rows):
    both = {"image": [None, "b.png"], **TEXT}, {"image": ["a.png", None], **TEXT}
    source = open_(rows(*both))
    assert [[m.source.name for m in source.document(n).media] for n in range(2)] == [["b.png"], ["a.png"]]
    (line,) = source.remarks
    assert "null stands before media of image" in line and "<image 2>" in line


def test_so_it_is_of_several_columns(open_, rows):
    both = {"left": None, "right": "b.png", **TEXT}, {"left": "a.png", "right": "b.png", **TEXT}
    (line,) = open_(rows(*both), columns={"image": ["left", "right"]}).remarks
    assert "null stands before media of image" in line


@pytest.mark.parametrize(
    "both",
    [
        ({"image": [None, "b.png"], **TEXT}, {"image": [None, "a.png"], **TEXT}),
        ({"image": ["a.png", "b.png"], **TEXT}, {"image": ["a.png", None], **TEXT}),
        ({"image": [None, "b.png"], "query": "<image 2>?", "response": "x"}, {"image": ["a.png"], **TEXT}),
    ],
)
def test_where_nothing_moves_nothing_is_told(open_, rows, both):
    assert open_(rows(*both)).remarks == ()
