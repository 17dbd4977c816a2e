"""Media that stand in rows as nested lists of numbers."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos import SampleError
from kosmos.components import ModalitySpec
from kosmos.data.document import Mark, Media, Text
from kosmos.data.sources.opening import open_source
from kosmos.hookspecs import hookimpl
from kosmos.plugins import Registry

DIMS = {"imu": (2,), "ecg": (1, 2), "sound": ()}
SERIES = [[1.5, -2.0, 300.0], [0.5, 0.0, 1.0]]


@hookimpl
def kosmos_modalities():
    for name, arrays in DIMS.items():
        yield ModalitySpec(name=name, target="a:b", summary=name, encoder="c", has_time=True, arrays=arrays)


@pytest.fixture
def opened(tmp_path):
    """Opens rows, or a file of them."""
    registry = Registry.from_modules(
        {"series": SimpleNamespace(KOSMOS_API=1, __name__="series", kosmos_modalities=kosmos_modalities)}, core=False
    )

    def open_(*rows, **given):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        file = given.pop("file", path)
        return open_source(str(file), registry=registry, split="train", modalities=tuple(DIMS), held_out=0.0, **given)

    return open_


def media_of(source, row=0):
    return [(one.modality, one.source.tolist(), one.rate_hz, one.clip) for one in source.document(row).media]


@pytest.mark.parametrize(
    ("held", "media"),
    [
        ({"imu": SERIES}, [("imu", SERIES, None, None)]),
        ({"imu": [SERIES, SERIES[:1]]}, [("imu", SERIES, None, None), ("imu", SERIES[:1], None, None)]),
        ({"imu": {"array": SERIES}}, [("imu", SERIES, None, None)]),
        ({"imu": {"array": SERIES, "rate_hz": 50}}, [("imu", SERIES, 50, None)]),
        ({"imu": {"array": SERIES, "sampling_rate": "50"}}, [("imu", SERIES, 50, None)]),
        ({"imu": {"array": SERIES, "rate_hz": 50, "clip": [0, 0.02]}}, [("imu", SERIES, 50, (0, 0.02))]),
        ({"imu": SERIES, "clip": [0, 0.02]}, [("imu", SERIES, None, (0, 0.02))]),
        ({"ecg": [1, 2, 70_000]}, [("ecg", [1, 2, 70_000], None, None)]),
        ({"ecg": SERIES}, [("ecg", SERIES, None, None)]),
        ({"sound": {"array": [12000.0, -3.0], "rate_hz": 8000}}, [("sound", [12000, -3], 8000, None)]),
        ({"segments": [{"imu": SERIES}, {"text": "x"}]}, [("imu", SERIES, None, None)]),
    ],
)
def test_nested_lists_of_numbers_are_a_medium(opened, held, media):
    source = opened({**held, "text": "x"})
    assert media_of(source) == media
    for template in ["[imu] → {text}"] if held.keys() == {"imu"} else []:
        assert media_of(opened({**held, "text": "x"}, template=template)) == media


def test_numbers_keep_what_they_are(opened):
    (whole,) = opened({"imu": [[1, 2]], "text": "x"}).document(0).media
    (floats,) = opened({"imu": [[1, 2.5]], "text": "x"}).document(0).media
    (gaps,) = opened({"imu": [[1, None]], "text": "x"}).document(0).media
    assert (whole.source.dtype, floats.source.dtype, gaps.source.dtype) == (np.int64, np.float32, np.float32)
    assert np.isnan(gaps.source).tolist() == [[False, True]]


def test_in_a_chat_an_array_is_one_medium_and_a_list_of_arrays_several(opened):
    turns = [{"role": "user", "content": "<imu> What?"}, {"role": "assistant", "content": "x"}]
    assert media_of(opened({"messages": turns, "imu": SERIES})) == [("imu", SERIES, None, None)]
    turns[0]["content"] = "<imu><imu> What?"
    source = opened({"messages": turns, "imu": [SERIES, SERIES[1:]]})
    assert [medium[1] for medium in media_of(source)] == [SERIES, SERIES[1:]]
    parts = [{"type": "imu", "imu": {"array": SERIES, "rate_hz": 9}}, {"type": "text", "text": "What?"}]
    chat = [{"role": "user", "content": parts}, {"role": "assistant", "content": "x"}]
    kinds = [type(one) for one in opened({"messages": chat}).document(0).segments[:3]]
    assert kinds == [Mark, Media, Text]


def test_between_texts_an_array_is_told_by_its_place(opened):
    source = opened({"texts": [None, "a", None, "b"], "imu": [SERIES, None, SERIES[1:], None]})
    assert [medium[1] for medium in media_of(source)] == [SERIES, SERIES[1:]]


def test_lists_of_lists_in_parquet_are_media(opened, tmp_path):
    type_ = pa.list_(pa.list_(pa.float32()))
    table = pa.table({"imu": pa.array([SERIES, SERIES[1:]], type_), "text": ["a", "b"]})
    pq.write_table(table, tmp_path / "rows.parquet")
    source = opened(file=tmp_path / "rows.parquet")
    assert [media_of(source, row)[0][1] for row in range(2)] == [SERIES, SERIES[1:]]


@pytest.mark.parametrize(
    ("held", "why"),
    [
        ({"imu": [[1, 2], [3]]}, "imu: array: lists of unequal lengths, 2 and 1 (list 0 and list 1)"),
        ({"imu": [[1, 2], 3]}, "imu: array: lists of unequal lengths, a list and a number"),
        ({"imu": [SERIES, 0]}, "imu: array: expected a list of numbers, got 0"),
        ({"imu": [1, 2, 3]}, "imu: expected an array of 2 dimensions, got one of 1"),
        ({"imu": {"array": [1, 2]}}, "imu: array: expected 2 dimensions, got [2] values"),
        ({"imu": {"array": [["a"]]}}, "imu: array: expected a list of numbers, got [['a']]"),
        ({"imu": {"array": SERIES, "rate_hz": 0}}, "imu: rate_hz: expected a number above 0, got 0"),
        ({"imu": {"values": SERIES}}, "imu: expected a path, bytes or a data: URL, got an object without path, url, "),
        ({"sound": {"array": SERIES, "rate_hz": 9}}, "sound: array: expected the samples of one channel, got [2, 3] "),
    ],
)
def test_what_is_no_array_of_the_modality_makes_a_bad_sample(opened, held, why):
    with pytest.raises(SampleError, match=re.escape(f": {why}")):
        opened({**held, "text": "x"}).document(0)
