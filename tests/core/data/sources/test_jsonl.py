"""JSONL rows: their forms, and that a malformed one costs itself alone."""

from __future__ import annotations

import io
import json
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kosmos.data.document import Media, Text
from kosmos.data.sources import jsonl, texts_of
from kosmos.errors import DataError, SampleError


def segments(source, index=0):
    return [
        s if isinstance(s, Text) else (s.modality, getattr(s.source, "name", s.source))
        for s in source.document(index).segments
    ]


def test_plain_text_is_trained(open_, rows):
    assert segments(open_(rows({"text": "all of it"}))) == [Text("all of it", train=True)]


def test_not_a_number_is_no_text_and_the_word_nan_is(open_, rows):
    source = open_(rows({"text": math.nan}, {"text": ["a", math.nan]}, {"text": "nan"}, {"text": 1.5}))
    for row, got in enumerate(("NaN", "a list with NaN")):
        with pytest.raises(SampleError, match=f"text: expected text, got {got}$"):
            source.document(row)
    assert [segments(source, row) for row in (2, 3)] == [[Text("nan", train=True)], [Text("1.5", train=True)]]


def test_media_come_first_in_the_order_of_the_row_then_the_text(open_, rows):
    source = open_(rows({"audio": "b.wav", "text": "both", "image": ["a.png", "a.png"]}))
    expected = [("audio", "b.wav"), ("image", "a.png"), ("image", "a.png"), Text("both", train=True)]
    assert segments(source) == expected


def test_media_may_stand_under_the_plural(open_, rows):
    source = open_(rows({"text": "two", "images": ["a.png", "a.png"], "audio": "b.wav", "videos": []}))
    assert segments(source) == [("image", "a.png"), ("image", "a.png"), ("audio", "b.wav"), Text("two", train=True)]


def test_media_under_the_plural_that_the_run_has_not_are_told(open_, rows):
    source = open_(rows({"text": "one", "videos": ["c.mp4"]}, {"text": "two"}), modalities=["image"])
    assert (len(source), source.left_out) == (1, {"video": 1})


def test_media_under_both_the_singular_and_the_plural_cost_the_row(open_, rows):
    source = open_(rows({"text": "ok"}, {"text": "which", "image": "a.png", "images": ["a.png"]}))
    with pytest.raises(SampleError, match=r"image and images both hold media; keep one, or name it: columns\.image"):
        source.document(1)
    named = open_(rows({"text": "which", "image": "none.png", "images": ["a.png"]}), columns={"image": "images"})
    assert segments(named) == [("image", "a.png"), Text("which", train=True)]


def test_an_empty_text_is_no_medium(open_, rows):
    assert segments(open_(rows({"text": "alone", "image": ""}))) == [Text("alone", train=True)]


def test_absolute_paths_below_the_rows_are_files_like_others(open_, rows, tmp_path):
    path = rows({"text": "x"})
    path.write_text(json.dumps({"text": "x", "image": str(path.parent / "a.png")}) + "\n")
    assert segments(open_(path)) == [("image", "a.png"), Text("x", train=True)]


@pytest.mark.parametrize("value", [["a.png", "a.png"], [{"path": "a.png", "bytes": None}], {"path": "a.png"}])
def test_media_of_a_misspelt_column_are_told(open_, rows, value):
    source = open_(rows({"text": "one"}, {"text": "two", "imgs": value}))
    assert (len(source), source.left_out) == (1, {"imgs": 1})


def test_segments_keep_their_order_and_say_what_is_trained(open_, rows):
    parts = [{"text": "Look: "}, {"image": "a.png"}, {"text": "Q?", "train": False}, {"text": " A.", "train": True}]
    expected = [Text("Look: ", train=True), ("image", "a.png"), Text("Q?"), Text(" A.", train=True)]
    assert segments(open_(rows({"segments": parts}))) == expected


def test_null_medium_is_none(open_, rows):
    assert segments(open_(rows({"image": None, "text": "only text"}))) == [Text("only text", train=True)]


def test_clip_is_a_range_of_seconds(open_, rows):
    source = open_(rows({"audio": "b.wav", "clip": [1, 2.5], "text": "x"}))
    assert source.document(0).segments[0].clip == (1.0, 2.5)


def test_data_urls_give_bytes(open_, rows):
    source = open_(rows({"image": "data:image/png;base64,aGVsbG8=", "text": "x"}))
    assert source.document(0).segments[0].source == b"hello"


def test_blank_lines_byte_order_mark_and_windows_line_ends_keep_line_numbers(open_, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "one"}\r\n\r\n   \n{"text": "four"}')
    source = open_(path)
    assert [source.document(i).origin for i in range(2)] == [f"{path}:1", f"{path}:4"]
    assert segments(source, 1) == [Text("four", train=True)]


@given(
    parts=st.lists(st.sampled_from([b"\n", b" ", b"\t\r", b"\xef\xbb\xbf", b"{}", b"a b", b"\xef"]), max_size=30),
    piece=st.integers(1, 12),
)
@example(parts=[], piece=1)
@example(parts=[b"{}", b"\n", b" ", b"\n"], piece=3)
def test_lines_are_found_wherever_a_file_is_cut_into_pieces(parts, piece):
    content = b"".join(parts)
    expected, place = [], 0
    for number, line in enumerate(io.BytesIO(content)):
        if line.strip(b" \t\r\n\xef\xbb\xbf"):
            expected.append([place, place + len(line), number + 1])
        place += len(line)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_PIECE", piece)
        path = Path(folder, "rows.jsonl")
        path.write_bytes(content)
        table = jsonl.index_jsonl([path])
    assert np.stack([table.offset, table.end, table.line], 1).tolist() == expected


def test_a_row_after_blank_lines_and_between_files_is_read_where_it_is(open_, rows):
    folder = rows({"text": "one"}, b"", b" ", {"text": "two"}, name="set/a.jsonl").parent
    rows(b"", {"text": "three"}, name="set/b.jsonl")
    source = open_(folder)
    assert [source.document(i).segments[0].text for i in range(3)] == ["one", "two", "three"]


BAD = {
    b'{"messages": [{"role": "user", ': "not JSON: Expecting property name .* at column 31$",
    b"{not json": r"not JSON: Expecting property name .* at column 2",
    b"[1, 2]": "expected an object, got a list",
    b'{"text": "\xff"}': "not UTF-8 at byte 10",
    b"[" * 100_000: "not JSON: nested too deeply",
    b'{"text": "\\ud800"}': "lone surrogate",
    json.dumps({"text": "a\0b"}).encode(): "text: holds a NUL character at 1",
    b'{"text": null}': "text: expected text, got null",
    b'{"text": {"a": 1}}': "text: expected text, got an object",
    b'{"text": "  "}': "text is empty",
    b'{"other": 1}': "no 'text'",
    b'{"image": "gone.png", "text": "x"}': r"gone.png: no such file",
    b'{"image": 7, "text": "x"}': "image: expected a path, bytes or a data: URL, got a number",
    b'{"image": "data:image/png;base64,@@", "text": "x"}': "base64 data is broken",
    b'{"audio": "b.wav", "clip": [3, 1], "text": "x"}': r"clip: expected 0 <= start < end, got \[3.0, 1.0\]",
    b'{"audio": "b.wav", "clip": "all", "text": "x"}': r"clip: expected \[start, end\] in seconds, got 'all'",
    b'{"segments": []}': "segments: expected a list that is not empty",
    b'{"segments": ["hi"]}': r"segments\[0\]: expected an object, got a string",
    b'{"segments": [{"text": "a", "image": "a.png"}]}': r"segments\[0\]: expected text or one medium, got text, image",
    b'{"segments": [{"text": "a", "train": 1}]}': r"segments\[0\].train: expected true or false, got a number",
    b'{"segments": [{"text": ""}]}': "no text and no media",
    b'{"messages": {}}': "messages: expected a list",
}


@pytest.mark.parametrize("line", BAD, ids=[line[:40].decode("latin-1") for line in BAD])
def test_malformed_row_costs_that_row_alone(open_, rows, line):
    path = rows({"text": "before"}, line, {"text": "after"})
    source = open_(path)
    assert len(source) == 3
    with pytest.raises(SampleError, match=BAD[line]) as caught:
        source.document(1)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert "\n" not in caught.value.line()
    assert [segments(source, i)[0].text for i in (0, 2)] == ["before", "after"]


def test_row_over_the_limit_of_text_is_refused(open_, rows):
    source = open_(rows({"text": "short"}, {"text": "x" * 200}), options={"max_text_bytes": 100})
    with pytest.raises(SampleError, match=r"200 bytes of text, over the limit of 100"):
        source.document(1)


def test_row_over_the_limit_of_bytes_is_never_parsed(open_, rows, monkeypatch):
    monkeypatch.setattr("kosmos.data.sources.jsonl.MAX_ROW_BYTES", 1000)
    source = open_(rows({"text": "short"}, {"text": "x" * 3000}, {"text": "after"}))
    with pytest.raises(SampleError, match="a row of more than 1,000 bytes"):
        source.document(1)
    assert segments(source, 2) == [Text("after", train=True)]


def test_file_with_no_readable_row_is_refused(open_, rows):
    with pytest.raises(DataError, match=r"none of its 2 rows can be read; the first: .*:1: not JSON[^;]*$"):
        open_(rows(b"{", b"}"))
    with pytest.raises(DataError, match=r"got a list; it is one JSON list, as a \.json file: name it rows\.json$"):
        open_(rows(b'[{"text": "a"}, {"text": "b"}]'))


def test_a_json_file_of_which_no_row_can_be_read_has_the_right_name(open_, tmp_path):
    (tmp_path / "rows.json").write_text('[{"conversations": [{"from": "human", "text": "Q"}]}]')
    with pytest.raises(
        DataError, match=r"none of its 1 rows can be read; the first: .*no 'value'; there are: from, text$"
    ):
        open_(tmp_path / "rows.json")


def test_a_misspelt_column_of_one_row_is_told_as_that_of_all(open_, rows):
    turns = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    source = open_(rows({"text": "a"}, {"conversation": turns}))
    with pytest.raises(SampleError, match=r"no 'text'; did you mean columns: \{conversations: conversation\}\?"):
        source.document(1)


def test_empty_file_is_refused(open_, rows):
    with pytest.raises(DataError, match="holds no rows"):
        open_(rows())


def test_first_row_without_the_text_column_names_the_nearest(open_, rows):
    with pytest.raises(DataError, match=r"rows.jsonl:1: text: no column 'text'; did you mean texte\?"):
        open_(rows({"texte": "x"}))
    with pytest.raises(DataError, match=r"columns.text: no column 'captoin'; did you mean caption\?"):
        open_(rows({"caption": "x"}), columns={"text": "captoin"})


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"conversation": [], "image": "a.png"}, r"; did you mean columns: {conversations: conversation}\?$"),
        ({"mesages": [], "images": ["a.png"]}, r"; did you mean columns: {messages: mesages}\?$"),
        ({"segmets": []}, r"; did you mean columns: {segments: segmets}\?$"),
        ({"images": ["a.png"], "number": 1}, r"or write a template$"),
    ],
)
def test_rows_whose_chat_has_a_misspelt_name_name_the_nearest(open_, rows, row, said):
    with pytest.raises(DataError, match=said):
        open_(rows(row, row))


def test_first_row_without_the_text_column_costs_itself_alone(open_, rows):
    source = open_(rows({"id": 1}, {"text": "good"}, {"id": 2}))
    assert segments(source, 1) == [Text("good", train=True)]
    for index in (0, 2):
        with pytest.raises(SampleError, match="no 'text'"):
            source.document(index)


def test_rows_of_which_none_has_the_columns_name_the_first(open_, rows):
    with pytest.raises(DataError, match=r"rows.jsonl:2: text: no column 'text'; did you mean texte\?"):
        open_(rows(b"{", {"texte": "x"}, {"texte": "y"}, {"other": "z"}))


def test_medium_of_nulls_is_none(open_, rows):
    nothing = {"bytes": None, "path": None}
    source = open_(rows({"image": nothing, "text": "a"}, {"image": [nothing], "text": "b"}), modalities=())
    assert (len(source), source.left_out) == (2, {})
    assert [segments(source, i) for i in range(2)] == [[Text("a", train=True)], [Text("b", train=True)]]


def test_columns_rename_media_text_id_and_split(open_, rows):
    path = rows(*({"picture": "a.png", "caption": f"c{i}", "part": "val" if i == 3 else "train"} for i in range(5)))
    columns = {"image": "picture", "text": "caption", "split": "part"}
    train, held_out = (open_(path, columns=columns, split=split) for split in ("train", "held_out"))
    assert (len(train), len(held_out)) == (4, 1)
    assert segments(held_out) == [("image", "a.png"), Text("c3", train=True)]


def test_folder_of_jsonl_files_takes_splits_from_their_names(open_, rows, tmp_path):
    rows({"text": "1"}, {"text": "2"}, name="set/train.jsonl")
    rows({"text": "3"}, name="set/test.jsonl")
    for name in ("a.png", "b.wav"):
        (tmp_path / "set" / name).unlink()
    train, held_out = (open_(tmp_path / "set", split=split) for split in ("train", "held_out"))
    assert (len(train), len(held_out)) == (2, 1)
    assert held_out.document(0).origin.endswith("test.jsonl:1")


def test_files_that_say_nothing_beside_one_that_is_held_out_are_trained_on(open_, rows, tmp_path):
    for name in ("train", "more", "test"):
        rows({"text": name}, name=f"set/{name}.jsonl")
        rows({"text": name}, name=f"two/{name}.jsonl")
    (tmp_path / "two" / "train.jsonl").unlink()
    for folder in ("set", "two"):
        for name in ("a.png", "b.wav"):
            (tmp_path / folder / name).unlink()
        assert list(texts_of(open_(tmp_path / folder, split="held_out"))) == ["test"]
    assert list(texts_of(open_(tmp_path / "set"))) == ["more", "train"]
    assert list(texts_of(open_(tmp_path / "two"))) == ["more"]


def test_folders_of_files_may_be_called_test_for_what_they_hold(open_, rows, tmp_path):
    for name in ("test", "blog"):
        rows({"text": name}, name=f"set/{name}/a.jsonl")
        for medium in ("a.png", "b.wav"):
            (tmp_path / "set" / name / medium).unlink()
    assert sorted(texts_of(open_(tmp_path / "set"))) == ["blog", "test"]


def test_media_of_rows_are_media(open_, rows):
    assert isinstance(open_(rows({"image": "a.png", "text": "x"})).document(0).segments[0], Media)
