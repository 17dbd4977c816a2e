"""Which stretch of a medium a row means, and what is not read of it is told."""

from __future__ import annotations

import base64
import io
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.errors import DataError, SampleError

NEMO = {"audio": "b.wav", "offset": 3.0, "duration": 4.0, "text": "x"}
PART = {"type": "audio", "audio": "b.wav"}
DATA_URL = "data:audio/wav;base64," + base64.b64encode(b"sound").decode()


def chat(*parts):
    return {"messages": [{"role": "user", "content": list(parts)}, {"role": "assistant", "content": "y"}]}


def clips(source, index=0):
    return [medium.clip for medium in source.document(index).media]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (NEMO, (3.0, 7.0)),
        ({**NEMO, "offset": 0}, (0.0, 4.0)),
        ({**NEMO, "offset": 1, "duration": 2}, (1.0, 3.0)),
        ({**NEMO, "clip": [0.5, 1.0]}, (0.5, 1.0)),
        ({**NEMO, "audio": {"path": "b.wav"}}, (3.0, 7.0)),
        ({"audio": {"path": "b.wav", "offset": 1.0, "duration": 2.0}, "text": "x"}, (1.0, 3.0)),
        ({"audios": [{"audio": "b.wav", "clip": [0, 1]}], "text": "x"}, (0.0, 1.0)),
        ({**chat({"type": "audio"}), "audios": [{"audio": "b.wav", "clip": [0, 1]}]}, (0.0, 1.0)),
        ({**NEMO, "audio": {"path": "b.wav", "clip": [1.0, 2.0]}}, (1.0, 2.0)),
        ({**NEMO, "audio": DATA_URL}, (3.0, 7.0)),
        ({"query": "What?", "response": "y", "audios": ["b.wav"], "offset": 3.0, "duration": 4.0}, (3.0, 7.0)),
        ({**chat({"type": "audio"}), "audios": ["b.wav"], "offset": 3.0, "duration": 4.0}, (3.0, 7.0)),
        ({**chat(PART), "offset": 3.0, "duration": 4.0}, (3.0, 7.0)),
        ({**chat(PART), "clip": [3.0, 7.0]}, (3.0, 7.0)),
        (chat({**PART, "offset": 1.0, "duration": 2.0}), (1.0, 3.0)),
        ({"segments": [{"audio": "b.wav", "offset": 1.0, "duration": 2.0}, {"text": "x"}]}, (1.0, 3.0)),
        ({"segments": [{"audio": "b.wav"}, {"text": "x"}], "clip": [1.0, 3.0]}, (1.0, 3.0)),
        ({"audio": "b.wav", "audio_start": 1, "audio_end": "2.5", "text": "x"}, (1.0, 2.5)),
        ({"audio": "b.wav", "audio_end": 2.5, "text": "x"}, (0.0, 2.5)),
        ({"audio": "b.wav", "audio_start": 1, "audio_end": 2, "clip": [3.0, 4.0], "text": "x"}, (3.0, 4.0)),
        ({**NEMO, "audio_start": 1, "audio_end": 2}, (1.0, 2.0)),
        ({"audio": DATA_URL, "audio_start": 1, "audio_end": 2, "text": "x"}, (1.0, 2.0)),
        ({"audio": {"path": "b.wav", "audio_start": 1, "audio_end": 2}, "text": "x"}, (1.0, 2.0)),
        ({**chat({"type": "audio"}), "audios": ["b.wav"], "audio_start": 1, "audio_end": 2}, (1.0, 2.0)),
        (chat({**PART, "audio_start": 1, "audio_end": 2}), (1.0, 2.0)),
        ({"segments": [{"audio": "b.wav", "audio_start": 1, "audio_end": 2}, {"text": "x"}]}, (1.0, 2.0)),
    ],
)
def test_a_stretch_is_that_of_the_row_or_of_the_medium_itself(open_, rows, row, expected):
    assert clips(open_(rows(row))) == [expected]


@pytest.mark.parametrize(
    "said",
    [
        {"duration": 11.0},
        {"duration": 11.0, "offset": None},
        {"offset": 0},
        {"offset": "+02:00", "duration": 11.0},
        {"start": "2020-01-01", "end": "2020-01-02"},
        {"start": 3.0},
        {"start_time": 3.0, "end_time": None},
        {"start": 0.0, "duration": 4.0},
        {"start_time": 1699999999, "duration": 10.0},
        {"start_time": "10:00:00", "duration": 10.0},
        {"start_frame": 2, "duration": 10.0},
        {"start": 3.0, "duration": None},
        {"start": True, "end": False},
        {"start": float("nan"), "end": float("nan")},
        {"audio_start": None, "audio_end": None},
        {"audio_start": 0},
        {"image_start": 3.0, "image_end": 4.0},
    ],
)
def test_what_says_no_stretch_is_passed_over(open_, rows, said):
    assert clips(open_(rows({"audio": "b.wav", "text": "x", **said}))) == [None]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            {"offset": 3.0},
            r"offset without a duration is not read; write clip: \[start, end\] in seconds, or name the",
        ),
        ({"start": 3.0, "end": 7.0}, "start and end beside a medium are not read; write clip"),
        ({"start": 0, "end": 7}, "start and end beside"),
        (
            {"start_time": 3.0, "end_time": 7.0},
            r"start_time and end_time beside .*\{start: start_time, end: end_time\}",
        ),
        ({"begin": 3.0, "end": 7.0}, "begin and end beside"),
        ({"start": 3.0, "duration": 4.0}, r"start and duration beside .*\{offset: start, duration: duration\}"),
        ({"begin_time": 3.0, "clip_dur": 4.0}, r"\{offset: begin_time, duration: clip_dur\}"),
        (
            {"audio_begin": 3.0, "audio_end": 7.0},
            "audio_begin and audio_end are not read together; call it aud",
        ),
        ({"begin_time": "3.0", "end_time": "7.0"}, "begin_time and end_time beside"),
        ({"offset": -1.0, "duration": 7.0}, "offset -1, duration 7: expected seconds from 0 on"),
        ({"offset": 1.0, "duration": 0}, "offset 1, duration 0: expected"),
        ({"audio_start": 1.0}, r"audio_start without audio_end is not read; write clip: \[start, end\] in seconds"),
        ({"audio_start": 2.0, "audio_end": 1}, "audio_start and audio_end: expected seconds, 0 <= start < end, got 2"),
        ({"audio_start": "00:01", "audio_end": "00:02"}, "audio_start and audio_end: expected seconds"),
    ],
)
@pytest.mark.parametrize(
    "row",
    [
        {"audio": "b.wav", "text": "x"},
        {"query": "What?", "response": "y", "audio": "b.wav"},
        chat(PART),
        {"segments": [{"audio": "b.wav"}, {"text": "x"}]},
    ],
)
def test_times_that_are_not_read_make_a_bad_sample(open_, rows, row, said, cause):
    source = open_(rows({**row, **said}, {"text": "good"}))
    with pytest.raises(SampleError, match=cause):
        source.document(0)
    assert len(source) == 2


def test_times_of_an_object_that_are_not_read_make_a_bad_sample(open_, rows):
    source = open_(rows({"audio": {"path": "b.wav", "start": 1.0, "end": 2.0}, "text": "x"}, {"text": "good"}))
    with pytest.raises(SampleError, match=r"audio: start and end beside a medium are not read; write clip: \[start"):
        source.document(0)


@pytest.mark.parametrize("said", [{"start": 3, "end": 7}, {"offset": 3.0, "duration": 4.0}, {"offset": 3.0}])
def test_times_in_rows_of_pictures_and_of_text_are_those_of_nothing(open_, rows, said):
    source = open_(rows({"image": "a.png", "text": "x", **said}, {"text": "x", **said}))
    assert clips(source) == [None]
    assert source.document(1).segments[0].text == "x"


def test_of_a_row_with_a_picture_too_the_sound_has_the_time(open_, rows):
    source = open_(rows({**NEMO, "image": "a.png"}))
    assert {medium.modality: medium.clip for medium in source.document(0).media} == {
        "image": None,
        "audio": (3.0, 7.0),
    }


def test_nemo_names_its_sound_otherwise(open_, rows):
    row = {"audio_filepath": "b.wav", "offset": 3.0, "duration": 4.0, "text": "x"}
    assert clips(open_(rows(row), columns={"audio": "audio_filepath"})) == [(3.0, 7.0)]
    assert clips(open_(rows(row), template="[audio:audio_filepath] → {text}")) == [(3.0, 7.0)]


def test_edges_bear_the_name_of_the_modality_or_of_the_column_that_stands_for_it(open_, rows, tmp_path):
    for name in ("audio", "sound"):
        row = {"sound": "b.wav", f"{name}_start": 3.0, f"{name}_end": 7.0, "text": "x"}
        assert clips(open_(rows(row), columns={"audio": "sound"})) == [(3.0, 7.0)]
        pq.write_table(pa.table({key: [value] for key, value in row.items()}), tmp_path / "a.parquet")
        assert clips(open_(tmp_path / "a.parquet", columns={"audio": "sound"})) == [(3.0, 7.0)]
        assert clips(open_(tmp_path / "a.parquet", template="[audio:sound] → {text}")) == [(3.0, 7.0)]
    row = {"audio": "b.wav", "audio_start": 1.0, "audio_end": 2.0}
    assert clips(open_(rows(row), template="[audio] From when? → {audio_start} to {audio_end}")) == [None]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"start": "from", "end": "to"}, (1.5, 4.0)),
        ({"start": "from"}, None),
        ({"offset": "from", "duration": "to"}, (1.5, 5.5)),
        ({"offset": "at.begin", "duration": "to"}, (2.0, 6.0)),
    ],
)
def test_columns_name_the_times(open_, rows, columns, expected):
    source = open_(rows({"audio": "b.wav", "text": "x", "from": 1.5, "to": 4.0, "at": {"begin": 2.0}}), columns=columns)
    if expected is None:
        with pytest.raises(SampleError, match=r"from and end: expected seconds, got 1\.5 and None"):
            source.document(0)
        return
    assert clips(source) == [expected]
    source = open_(
        rows({"audio": "b.wav", "text": "x", "from": None, "to": None, "at": {"begin": None}}), columns=columns
    )
    assert clips(source) == [None]
    with pytest.raises(DataError, match="no column"):
        open_(rows({"audio": "b.wav", "text": "x"}), columns=columns)


def test_start_and_end_may_be_named_by_their_own_names(open_, rows):
    columns = {"start": "start", "end": "end"}
    row = {"audio": "b.wav", "text": "x", "start": 1, "end": 2.5}
    assert clips(open_(rows(row), columns=columns)) == [(1.0, 2.5)]
    assert clips(open_(rows(row), columns=columns, template="[audio] → {text}")) == [(1.0, 2.5)]


def test_columns_that_mean_something_else_are_no_times(open_, rows):
    row = {"audio": "b.wav", "start": 1, "end": 2.5, "offset": 3, "duration": 4}
    assert clips(open_(rows({**row, "offset": None}), template="[audio] From when? → {start} to {end}")) == [None]
    del row["start"]
    assert clips(open_(rows(row), columns={"text": "offset"})) == [None]


def test_rows_of_csv_spell_their_numbers(open_, rows, tmp_path):
    rows({})
    (tmp_path / "a.csv").write_text("audio,offset,duration,text\nb.wav,3.0,4.0,x\nb.wav,,11.0,x\n")
    source = open_(tmp_path / "a.csv")
    assert [*clips(source), *clips(source, 1)] == [(3.0, 7.0), None]


def test_a_parquet_table_has_its_times_read(open_, tmp_path):
    table = {"audio": [{"bytes": b"sound"}], "offset": [3.0], "duration": [4.0], "text": ["x"], "other": ["y"]}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    assert clips(open_(tmp_path / "a.parquet")) == [(3.0, 7.0)]
    assert clips(open_(tmp_path / "a.parquet", template="[audio] → {text}")) == [(3.0, 7.0)]


def test_bytes_in_the_row_are_a_piece_already_whatever_it_was_cut_from(open_, tmp_path):
    times = {"begin_time": [30.0], "end_time": [34.0], "text": ["x"]}
    pq.write_table(pa.table({"audio": [{"bytes": b"sound", "path": "b.wav"}], **times}), tmp_path / "a.parquet")
    assert clips(open_(tmp_path / "a.parquet")) == [None]
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, content in (("1.wav", b"sound"), ("1.json", b'{"begin_time": 30.0, "end_time": 34.0, "text": "x"}')):
            (info := tarfile.TarInfo(name)).size = len(content)
            tar.addfile(info, io.BytesIO(content))
    assert clips(open_(tmp_path / "a.tar")) == [None]
