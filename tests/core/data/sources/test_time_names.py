"""Times under the names of public data sets are told, and names that are no times are not."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.sources.time_names import time_name
from kosmos.errors import SampleError

SOUND = {"audio": "b.wav", "text": "x"}
PAIRS = [
    *[("time_start", "time_end"), ("start_seconds", "end_seconds"), ("Start_timestamp", "End_timestamp")],
    *[("start_sec", "end_sec"), ("clip_start", "clip_end"), ("start_s", "end_s"), ("t_start", "t_end"), ("ts", "te")],
    *[
        ("startTime", "endTime"),
        ("START TIME", "END TIME"),
        ("begin-time", "end-time"),
        ("segment_start", "segment_end"),
    ],
    *[("tmin", "tmax"), ("xmin", "xmax"), ("audio_from", "audio_to")],
    *[("from_time", "to_time"), ("start", "stop"), ("audio_start_time", "audio_end_time"), ("startSec", "endSec")],
]
COUNTS = [
    ("Begin Time - msec", "End Time - msec"),
    ("start_frame", "end_frame"),
    ("start_ms", "end_ms"),
    ("sample_start", "sample_end"),
    ("frameStart", "frameEnd"),
]
STRETCHES = ["timestamp", "Segment", "span", "time_range", "interval", "clip_span"]


def asks(*parts):
    return {"messages": [{"role": "user", "content": list(parts)}, {"role": "assistant", "content": "y"}]}


def refused(source, match):
    with pytest.raises(SampleError, match=match):
        source.document(0)


@pytest.mark.parametrize(
    "row",
    [SOUND, {"query": "What?", "response": "y", "audio": "b.wav"}, {**asks({"type": "audio"}), "audios": ["b.wav"]}],
)
@pytest.mark.parametrize(("start", "end"), PAIRS)
def test_a_start_and_an_end_are_told_by_the_words_of_their_names(open_, rows, row, start, end):
    said = (
        rf"{start} and {end} beside a medium are not read; write clip: \[start, end\] in seconds, or name the columns"
    )
    refused(open_(rows({**row, start: 1, end: 2})), rf"{said} of seconds \(columns: {{start: {start}, end: {end}}}\)")


@pytest.mark.parametrize(("start", "end"), COUNTS)
def test_counts_of_frames_and_samples_are_told_and_no_columns_of_seconds(open_, rows, start, end):
    source = open_(rows({**SOUND, start: 10, end: 20}))
    refused(
        source, rf"{start} and {end} beside a medium are not read; write clip: \[start, end\] in seconds; leave them"
    )


@pytest.mark.parametrize(
    ("said", "columns"),
    [
        ({"offset_s": 2.0, "duration_s": 1.0}, "{offset: offset_s, duration: duration_s}"),
        ({"start_second": 2, "length": 1}, "{offset: start_second, duration: length}"),
        ({"begin": 2.0, "length": 1.0}, "{offset: begin, duration: length}"),
        ({"seek": 2.0, "duration": 1.0}, ""),
        ({"from_s": 2.0, "length_s": 1.0}, "{offset: from_s, duration: length_s}"),
        ({"start_sec": "2.0", "len": "1.0"}, "{offset: start_sec, duration: len}"),
        *(
            (dict(zip(names, (2000, 1000), strict=True)), "")
            for names in (
                ("offset_ms", "duration_ms"),
                ("start_ms", "duration_ms"),
                ("begin_ms", "length_ms"),
                ("start_sample", "num_samples"),
                ("frame_offset", "num_frames"),
                ("start_frame", "frame_length"),
            )
        ),
        ({"onset_ms": 1000, "offset_ms": 2000}, ""),
    ],
)
def test_a_start_with_a_length_of_its_unit_is_told_and_an_older_run_keeps_it(open_, rows, said, columns):
    source = open_(rows({**SOUND, **said}))
    named = rf"seconds \(columns: {columns}\)" if columns else r"write clip: \[start, end\] in seconds; leave"
    refused(source, rf"{' and '.join(said)} beside a medium (are|is) not read; .*{named}")
    assert source.has_time
    source.refuses_pieces = False
    assert [medium.clip for medium in source.document(0).media] == [None]


@pytest.mark.parametrize(
    "said",
    [
        {"start_sample": 0, "num_samples": 1000},
        {"start_ms": 2000, "duration": 10.0},
        {"start_time_ms": 1_700_000_000_000, "duration_ms": 1000},
        {"num_frames": 16, "length": 3},
        {"seek": 300, "num_samples": 16},
        {"offset_ms": 40},
        {"from_seconds": "x", "length": 2},
        {"time": [12, 30]},
        {"time_offset": 3600, "duration": 5.0},
        {"segment_offset": 3, "segment_length": 4},
        {"start_time": 93000, "length": 2},
    ],
)
def test_lengths_and_starts_that_say_no_piece_are_passed_over(open_, rows, said):
    assert [medium.clip for medium in open_(rows({**SOUND, **said})).document(0).media] == [None]


@pytest.mark.parametrize("name", ["timestamps", "time"])
def test_two_times_under_a_name_of_several_are_told_of_where_several_rows_name_one_file(open_, rows, name):
    several = [{**SOUND, name: [2.0 * n, 2.0 * n + 1]} for n in range(3)]
    (line,) = open_(rows(*several)).remarks
    assert line.startswith(f"its rows have {name}, which is not read, and several are of one file (b.wav): the text")
    assert line.endswith(f"(columns: {{clip: {name}}})")
    assert open_(rows(several[0])).remarks == ()


@pytest.mark.parametrize("name", STRETCHES)
@pytest.mark.parametrize("value", [[1, 2.5], "[1, 2.5]"])
def test_a_list_of_two_under_the_name_of_a_stretch_is_told(open_, rows, name, value):
    said = rf"{name} beside a medium is not read; write clip: .*or name it, of seconds \(columns: {{clip: {name}}}\)"
    refused(open_(rows({**SOUND, name: value})), said)


def test_what_the_message_says_is_what_helps(open_, rows):
    source = open_(rows({**SOUND, "timestamp": [1, 2.5]}), columns={"clip": "timestamp"})
    assert [medium.clip for medium in source.document(0).media] == [(1.0, 2.5)]
    source = open_(rows({**SOUND, "ts": 1, "te": 2.5}), columns={"start": "ts", "end": "te"})
    assert [medium.clip for medium in source.document(0).media] == [(1.0, 2.5)]


@pytest.mark.parametrize(
    "said",
    [
        {"Start_timestamp": "00:00:27.5", "End_timestamp": "00:01:02"},
        {"timestamp": ["0:27.5", "1:02"]},
        {"timestamp": "['00:00:27.500', '00:01:02.000']"},
    ],
)
def test_timecodes_are_told_in_seconds(open_, rows, said):
    refused(open_(rows({**SOUND, **said})), r"write clip: \[27\.5, 62\] in seconds; leave")


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            {"clip": [[0.5, 2], [1, 2]]},
            r'got \[\[0.5, 2\], \[1, 2\]\]; it is that of all media of the row: write each as {"path',
        ),
        (
            {"clip": ["00:00:01.000", "00:01:02.5"]},
            r"clip: expected \[start, end\] in seconds, got .*; write \[1, 62.5\]$",
        ),
        ({"clip": ["1", 2]}, r"; write \[1, 2\]$"),
        ({"clip": ["from", "to"]}, r"got \['from', 'to'\]$"),
        ({"audio_start": "00:01", "audio_end": "00:02"}, "got '00:01' and '00:02'; in seconds that is 1 and 2$"),
        (
            {"offset": "00:00:01", "duration": "00:00:02"},
            "offset: expected seconds, got '00:00:01'; write 1; leave it out",
        ),
    ],
)
def test_what_is_no_clip_is_told_with_the_form_that_is(open_, rows, said, cause):
    refused(open_(rows({**SOUND, **said})), cause)


def test_columns_of_timecodes_are_told_in_seconds(open_, rows):
    row = {**SOUND, "a": "00:00:01.5", "b": "00:00:02"}
    refused(open_(rows(row), columns={"start": "a", "end": "b"}), r"a and b: .*; in seconds that is 1\.5 and 2$")


def test_each_of_several_media_has_a_clip_of_its_own(open_, rows):
    each = [{"path": "b.wav", "clip": [0.5, 2]}, {"path": "b.wav", "clip": [1, 2]}]
    assert [medium.clip for medium in open_(rows({"audios": each, "text": "x"})).document(0).media] == [
        (0.5, 2),
        (1, 2),
    ]


def test_objects_and_parts_of_chats_are_told_of_too(open_, rows):
    said = r"time_start and time_end beside a medium are not read; write clip: \[start, end\]"
    times = {"time_start": 1, "time_end": 2}
    refused(open_(rows({"audio": {"path": "b.wav", **times}, "text": "x"})), said)
    refused(open_(rows(asks({"type": "audio", "audio": "b.wav", **times}))), said)


@pytest.mark.parametrize(
    "said",
    [
        {"timestamp": 1700000000, "date_start": 1, "date_end": 2, "line_start": 1, "line_end": 2},
        {"timestamps": [0.0, 0.5, 1.0], "span": [7, 3], "segment": ["a", "b"], "interval": None},
        {"words": [{"word": "x", "start": 0.1, "end": 0.4}], "start_times": [0.1, 0.5], "end_times": [0.4, 0.9]},
        {"timestamps": [[0.1, 0.4], [0.5, 0.9]]},
        {"timestamps": [0.1, 0.6], "segments_of": 2, "intervals": [1, 2], "window": [400, 1024]},  # of two words, say
        {"from": 1, "to": 2, "ts": 3, "time_start": 1, "end_seconds": 2},
        {"start_char": 1, "end_char": 5, "tokens": [1, 2], "bounds": [1, 2]},
    ],
)
def test_what_is_no_stretch_of_the_medium_is_passed_over(open_, rows, said):
    assert [medium.clip for medium in open_(rows({**SOUND, **said})).document(0).media] == [None]


def test_rows_without_media_that_have_time_and_columns_in_use_are_left_alone(open_, rows):
    times = {"time_start": 1, "time_end": 2, "span": [1, 2]}
    source = open_(rows({"image": "a.png", "text": "x", **times}, {"text": "x", **times}))
    assert len(source.document(0).segments) == 2
    assert len(source.document(1).segments) == 1
    template = "[audio] From when? → {time_start} to {time_end}, {span[0]}"
    assert open_(rows({"audio": "b.wav", **times}), template=template).document(0).media


def test_columns_of_a_table_are_read_for_it(open_, rows, tmp_path):
    rows()
    pq.write_table(
        pa.table({"audio": ["b.wav"], "text": ["x"], "Time_Start": [1.0], "Time_End": [2.0]}), tmp_path / "a.parquet"
    )
    refused(open_(tmp_path / "a.parquet"), "Time_Start and Time_End beside")
    refused(open_(tmp_path / "a.parquet", template="[audio] → {text}"), "Time_Start and Time_End beside")
    (tmp_path / "a.csv").write_text('audio,text,timestamp\nb.wav,x,"[1.5, 2]"\n')
    refused(open_(tmp_path / "a.csv"), "timestamp beside a medium is not read")


def test_the_name_of_the_column_that_holds_the_medium_may_stand_in_front(open_, rows):
    row = {"film": "b.wav", "text": "x", "film_start_sec": 1, "film_end_sec": 2}
    refused(open_(rows(row), columns={"audio": "film"}), "film_start_sec and film_end_sec beside")


@pytest.mark.parametrize("name", ["text", "context", "to", "from", "id", "messages", "s", "times", "restart", "x" * 60])
def test_most_names_say_nothing_of_times(name):
    assert time_name(name) is None


def test_nested_rows_of_words_stay_as_they_are(open_, tmp_path, rows):
    rows()
    (tmp_path / "a.json").write_text(json.dumps([{**SOUND, "chunks": [{"timestamp": [0, 1], "text": "x"}]}]))
    assert open_(tmp_path / "a.json").document(0).media


@pytest.mark.parametrize(("start", "end"), [("from", "to"), ("first", "last"), ("in", "out"), ("From", "To")])
def test_words_of_anything_cost_no_row_whatever_they_hold(open_, rows, start, end):
    for values in ((0.0, 2.0), ("9.99", "19.99"), (7, 9), ("anna", "ben"), (2.5, 1.5), (1.5, None), ("10:30", "11:00")):
        source = open_(rows({**SOUND, start: values[0], end: values[1]}))
        assert [medium.clip for medium in source.document(0).media] == [None]
        assert source.remarks == ()


@pytest.mark.parametrize("unit", [1, 0.5])
def test_numbers_under_words_of_anything_are_told_of_where_several_rows_name_one_file(open_, rows, unit):
    several = [{**SOUND, "from": 2 * n * unit, "to": (2 * n + 2) * unit} for n in range(3)]
    (line,) = open_(rows(*several)).remarks
    assert line.startswith(
        "its rows have from and to, which are not read, and several are of one file (b.wav): the text"
    )
    assert line.endswith("if they are seconds, name the columns (columns: {start: from, end: to})")
    assert open_(rows(*several), columns={"start": "from", "end": "to"}).remarks == ()
    assert (
        open_(rows(several[0], several[0])).remarks
        == open_(rows({**SOUND, "from": 3, "to": 1}, *several)).remarks
        == ()
    )


def test_a_box_is_no_stretch(open_, rows, tmp_path):
    box = {"xmin": 0.1, "ymin": 0.2, "xmax": 0.6, "ymax": 0.9}
    assert [*open_(rows({**SOUND, **box})).document(0).media]
    pq.write_table(pa.Table.from_pylist([{**SOUND, **box}]), tmp_path / "a.parquet")
    assert open_(tmp_path / "a.parquet").document(0).media


def test_names_with_brackets_are_those_of_times(open_, rows):
    raven = {"Begin Time (s)": 1.5, "End Time (s)": 2}
    refused(open_(rows({**SOUND, **raven})), r"columns: {start: Begin Time \(s\), end: End Time \(s\)}")
    source = open_(rows({**SOUND, **raven}), columns={"start": "Begin Time (s)", "end": "End Time (s)"})
    assert [medium.clip for medium in source.document(0).media] == [(1.5, 2.0)]


def test_an_onset_beside_an_offset_is_a_start_and_its_end(open_, rows):
    said = r"onset and offset beside a medium are not read; .*\(columns: {start: onset, end: offset}\)"
    refused(open_(rows({**SOUND, "onset": 0.0, "offset": 2.0})), said)
    source = open_(rows({**SOUND, "onset": 0.5, "offset": 2.0}), columns={"start": "onset", "end": "offset"})
    assert [medium.clip for medium in source.document(0).media] == [(0.5, 2.0)]


def test_what_a_recognizer_says_when_is_to_be_a_row_each(open_, rows):
    said = {"id": 0, "seek": 0, "start": 0.0, "end": 2.5, "text": " Hello.", "tokens": [1]}
    source = open_(rows({"audio": "b.wav", "text": " Hello.", "segments": [said]}, SOUND))
    refused(
        source, r'segments\[0\]: .*a row each .* \({"clip": \[0\.0, 2\.5\], "text": "Hello\."}\); .*leave segments out'
    )
