"""Rows of lists of one length with text or a medium at each place, as OBELICS and MINT-1T have them."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos import make_run
from kosmos.data.document import Media, Text
from kosmos.data.sources.media import EmptyMediumError
from kosmos.data.sources.ordered import read_interleaved
from kosmos.errors import DataError, SampleError
from kosmos.train.older_rules import keep_older
from kosmos.train.order import READS, sample_order

from .test_forms import said


def test_places_keep_their_order(open_, rows):
    row = {"texts": ["One", None, None, "two", None], "images": [None, "a.png", "a.png", None, None]}
    assert said(open_(rows(row))) == "[One] <image> <image> [two]"


def test_lists_of_two_modalities_and_a_column_of_another_name(open_, rows):
    row = {"texts": [None, "hear", None], "pics": ["a.png", None, None], "audios": [None, None, "b.wav"]}
    assert said(open_(rows(row), columns={"image": "pics"})) == "<image> [hear] <audio>"


def test_texts_without_media(open_, rows):
    assert said(open_(rows({"texts": ["One", None, "two"], "images": [None, None, None]}))) == "[One] [\ntwo]"


@pytest.mark.parametrize("beside", [{}, {"images": None}, {"images": []}, {"images": [None, ""]}, {"image": ""}])
def test_texts_alone_are_learned_whatever_stands_for_no_media(open_, rows, beside):
    source = open_(rows({"texts": ["just", "text"], **beside}))
    assert said(source) == "[just] [\ntext]"


def test_a_run_that_began_when_texts_alone_were_bad_samples_goes_on_so(open_, rows):
    source = open_(rows({"texts": ["just", "text"], "images": []}))
    order = sample_order(make_run({}), [])
    keep_older(older := {k: v for k, v in order.items() if k != READS}, order, [source])
    assert order == older
    with pytest.raises(SampleError, match="texts has 2 places and images 0"):
        source.document(0)


@pytest.mark.parametrize("nothing", [None, [], [None, None]])
def test_parquet_of_which_half_has_no_media(open_, tmp_path, nothing):
    images = pa.array([[None, b"\x89PNG"], nothing], pa.list_(pa.binary()))
    pq.write_table(pa.table({"texts": [["One", None], ["just", "text"]], "images": images}), tmp_path / "rows.parquet")
    source = open_(tmp_path / "rows.parquet")
    assert [said(source, index) for index in range(2)] == ["[One] <image>", "[just] [\ntext]"]


def test_bytes_of_nothing_are_no_medium_where_something_else_stands(open_, tmp_path):
    of_bytes = [[None, b"\x89PNG", b""], [b"", b"", b""]]
    table = pa.table({"texts": [["One", "", "two"], ["a", "b", "c"]], "images": of_bytes})
    pq.write_table(table, tmp_path / "rows.parquet")
    source = open_(tmp_path / "rows.parquet")
    assert [said(source, index) for index in range(2)] == ["[One] <image> [two]", "[a] [\nb] [\nc]"]
    source.reads_more = False
    with pytest.raises(SampleError, match="both hold something at place 2"):
        source.document(0)


KIND = pa.struct({"bytes": pa.binary(), "path": pa.string()})
EMPTY = {"bytes": b"", "path": None}
QUESTION, ANSWER = {"role": "user", "content": "What?"}, {"role": "assistant", "content": "A cat."}


@pytest.mark.parametrize(
    "row",
    [
        {"text": "a", "image": EMPTY},
        {"text": "a", "image": b""},
        {"texts": ["a", None], "images": [None, EMPTY]},
        {"texts": ["a", None], "images": [b"", b""]},
        {"segments": [{"text": "a", "image": b""}, {"text": None, "image": b""}]},
        {"messages": [{**QUESTION, "image": EMPTY}, ANSWER]},
    ],
)
def test_bytes_of_nothing_are_a_medium_that_is_empty(open_, tmp_path, row):
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "rows.parquet")
    with pytest.raises(EmptyMediumError, match="image: medium of zero bytes"):
        open_(tmp_path / "rows.parquet").document(0)


def test_objects_of_nulls_are_no_medium(open_, tmp_path):
    objects = pa.array([{"bytes": None, "path": None}, None], KIND)
    pq.write_table(pa.table({"image": objects, "text": ["a", "b"]}), tmp_path / "rows.parquet")
    source = open_(tmp_path / "rows.parquet")
    assert [said(source, index) for index in range(2)] == ["[a]", "[b]"]


def test_segments_of_a_table_have_bytes_of_nothing_beside_their_texts(open_, tmp_path):
    parts = [{"text": "a", "image": b""}, {"text": None, "image": b"\x89PNG"}]
    pq.write_table(pa.table({"segments": [parts]}), tmp_path / "rows.parquet")
    assert said(open_(tmp_path / "rows.parquet")) == "[a] <image>"


def test_parquet(open_, tmp_path):
    image = {"bytes": b"\x89PNG", "path": "a.png"}
    table = pa.table({"texts": [["One", None], [None, "two"]], "images": [[None, image], [None, None]]})
    pq.write_table(table, tmp_path / "rows.parquet")
    source = open_(tmp_path / "rows.parquet")
    assert [said(source, index) for index in range(2)] == ["[One] <image>", "[two]"]


MATCHED = {"texts": "text_list", "image": "image_info"}


def test_media_that_say_before_which_text_they_stand(open_, rows):
    info = [
        {"image_name": "b.wav", "raw_url": "http://x.org/b.wav", "matched_text_index": 2, "face_detections": None},
        {"image_name": "a.png", "raw_url": "http://x.org/a.png", "matched_text_index": 0},
        {"path": "a.png", "matched_text_index": 2},
    ]
    source = open_(rows({"text_list": ["One.", "Two.", "Three."], "image_info": info}), columns=MATCHED)
    assert said(source) == "<image> [One.] [ Two.] <image> <image> [Three.]"
    assert [medium.source.name for medium in source.document(0).media] == ["a.png", "b.wav", "a.png"]
    alone = rows({"text_list": ["One.", "Two."], "image_info": []})
    assert said(open_(alone, columns=MATCHED)) == "[One.] [\nTwo.]"


@pytest.mark.parametrize("held", [{"image": "a.png"}, {"url": "a.png"}, {"path": "a.png", "image_name": None}])
def test_matched_media_as_objects_have_them(open_, rows, held):
    row = {"text_list": ["One.", "Two."], "image_info": [None, {**held, "matched_text_index": 1, "sim": 0.2}]}
    assert said(open_(rows(row), columns=MATCHED)) == "[One.] <image> [Two.]"


def test_matched_media_say_which_stretch_is_meant(open_, rows):
    columns, medium = {"texts": "text_list", "audio": "info"}, {"audio_name": "b.wav", "matched_text_index": 0}
    source = open_(rows({"text_list": ["One."], "info": [{**medium, "clip": [0.5, 1]}]}), columns=columns)
    assert [found.clip for found in source.document(0).media] == [(0.5, 1.0)]
    with pytest.raises(SampleError, match="start and end beside a medium are not read"):
        open_(rows({"text_list": ["One."], "info": [{**medium, "start": 1, "end": 2}]}), columns=columns).document(0)


def test_matched_media_that_are_not_there_are_left_out(open_, rows):
    info = [{"image_name": name, "matched_text_index": 1} for name in ("gone.png", "a.png")]
    file = rows({"text_list": ["One.", "Two.", "Three."], "image_info": [*info, {**info[0], "matched_text_index": 2}]})
    source = open_(file, columns=MATCHED, options={"missing_media": "leave_out"})
    assert said(source) == "[One.] <image> [Two.] [ Three.]"


@pytest.mark.parametrize(
    ("info", "says"),
    [
        (
            {"image_name": "a.png", "matched_text_index": 2},
            r"image_info\[1\].matched_text_index: .* 2 text_list",
        ),
        ({"image_name": "a.png", "matched_text_index": None}, "from 0 on, got null"),
        ({"image_name": "a.png"}, "from 0 on, got null"),
        ({"raw_url": "http://x.org/a.png", "matched_text_index": 1}, "URLs of kind 'http' are never opened"),
        ({"image_name": None, "raw_url": "http://x.org/a.png", "matched_text_index": 1}, "URLs of kind 'http'"),
        ({"url": "http://x.org/a.png", "matched_text_index": 1}, "URLs of kind 'http'"),
        (
            {"image_name": None, "matched_text_index": 1},
            r"image_info\[1\]: names no medium; expected one of",
        ),
        ({"image_url": "a.png", "matched_text_index": 1}, "names no medium; .* got image_url, matched_text_index"),
        ({"file_name": "a.png", "matched_text_index": 1}, "names no medium"),
        ({"image_name": 3, "matched_text_index": 1}, "got an object"),
    ],
)
def test_matched_media_that_name_no_text_or_nothing_cost_their_row(open_, rows, info, says):
    row = {"text_list": ["One.", "Two."], "image_info": [{"image_name": "a.png", "matched_text_index": 0}, info]}
    with pytest.raises(SampleError, match=says):
        open_(rows(row), columns=MATCHED).document(0)


@pytest.mark.parametrize("beside", ["image_info", "image_list"])
def test_how_such_columns_are_named_is_told(open_, rows, beside):
    row = {"text_list": ["One."], beside: [{"image_name": "a.png", "matched_text_index": 0}]}
    file = rows(row, row)
    with pytest.raises(DataError, match=rf"turn are columns: {{texts: text_list, image: {beside}}}$"):
        open_(file)


def test_sentences_that_are_joined_by_commas_are_told_of(open_, rows):
    (line,) = open_(rows({"text_list": ["One cat.", "Two."]}), columns={"text": "text_list"}).remarks
    assert "lists of sentences in text_list" in line and "columns: {texts: text_list}" in line
    assert open_(rows({"text": ["red", "a bicycle"]})).remarks == ()
    assert open_(rows({"text": "One. Two."})).remarks == ()


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"texts": ["a", None], "images": ["a.png"]}, "texts has 2 places and images 1; at each place one of the"),
        ({"texts": ["a", None], "images": ["a.png", None]}, "texts and images both hold something at place 0"),
        ({"texts": ["a", None], "image": "a.png"}, r"got a string \(or texts and media in turn"),
        (
            {"texts": ["a", None], "images": [None, "a.png"], "audio": "b.wav"},
            "audio: beside lists of texts and media expected one too, got a string",
        ),
        ({"texts": ["a", None], "images": [None, "a.png"], "system": "Be kind."}, "system: texts is no chat"),
        ({"texts": [None, " "], "images": ["a.png", None]}, "texts holds no text"),
        ({"texts": ["a", None], "images": [None, "http://x.org/a.png"]}, "image: "),
        ({"texts": ["a", {"user": "b"}], "images": []}, r"texts\[0\]: expected an object with user and assistant"),
    ],
)
def test_what_is_no_such_row_is_told(open_, rows, row, says):
    with pytest.raises(SampleError, match=says):
        open_(rows(row)).document(0)


@given(
    st.lists(
        st.one_of(
            st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), st.binary(min_size=1)
        ),
        min_size=1,
    )
)
def test_a_document_is_its_places_that_hold_something(places):
    texts = [place if isinstance(place, str) else None for place in places]
    held = [place if isinstance(place, bytes) else None for place in places]
    read = lambda modality, value: [Media(modality, value)]  # noqa: E731
    media = {"image": ("images", held)} if any(held) else {}
    if not any(text and text.strip() for text in texts):
        with pytest.raises(SampleError, match="holds no text"):
            list(read_interleaved(texts, "texts", media, read))
        return
    found = list(read_interleaved(texts, "texts", media, read))
    assert [part.text if isinstance(part, Text) else part.source for part in found] == [
        f"\n{place}" if isinstance(before, str) and isinstance(place, str) else place
        for before, place in itertools.pairwise([None, *filter(None, places)])
    ]
    assert all(part.train for part in found if isinstance(part, Text))
