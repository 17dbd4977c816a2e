"""How rows and the parts of their chats want their media sampled is found, and told of a source as a whole."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos import SampleError
from kosmos.components import ModalitySpec
from kosmos.data.sources import open_source, scan_cache
from kosmos.data.sources.wishes import warnings_of
from kosmos.hookspecs import hookimpl
from kosmos.plugins import Registry

ANSWER = {"role": "assistant", "content": "y"}

SOUND = {"audio": "b.wav", "text": "x"}
BOTH = {"audio": ["audio_fps", "max_pixels"]}
WITHIN = {"audio": ["use_image_in_audio"]}


def asks(*parts, **beside):
    return {"messages": [{"role": "user", "content": list(parts)}, ANSWER], **beside}


def sound(**said):
    return {"type": "audio", "audio": "b.wav", **said}


@pytest.mark.parametrize(
    ("rows_", "found"),
    [
        ([asks(sound(fps=2.0, max_frames=None)), asks(sound(nframes=8))], {"audio": ["fps", "nframes"]}),
        ([asks({"type": "image_url", "image_url": {"url": "a.png", "detail": "low"}})], {"image": ["detail"]}),
        ([asks({"type": "image_url", "image_url": {"url": "a.png", "detail": "auto"}})], {}),
        ([asks(sound(), fps=2.0), {**SOUND, "nframes": 2}], {"audio": ["fps", "nframes"]}),
        ([{**SOUND, "audio_fps": 1, "image_fps": 2, "max_pixels": "100", "detail": "high"}], BOTH),
        ([{**SOUND, "fps": None, "nframes": "many", "max_pixels": float("nan"), "num_frames": [1]}], {}),
        ([{"text": "x", "fps": 2.0}], {}),
        ([{**SOUND, "channel": 1}, {**SOUND, "audio_channel": "A"}], {"audio": ["audio_channel", "channel"]}),
        ([{**SOUND, "channel": "BBC", "channel_id": "UC1"}, {"image": "a.png", "text": "x", "channel": 1}], {}),
        ([{"audio": {"path": "b.wav", "channel": 0}, "text": "x"}], {"audio": ["channel"]}),
        ([{**SOUND, "image": "a.png", "fps": 2.0, "max_pixels": 100}], {"": ["max_pixels"], "audio": ["fps"]}),
        ([{"image": "a.png", "text": "x", "fps": 2.0, "max_pixels": 100}], {"image": ["max_pixels"]}),
        ([{"audio": {"path": "b.wav", "fps": 2.0}, "text": "x"}], {"audio": ["fps"]}),
        ([{**SOUND, "rate_hz": 500}, {**SOUND, "audio_fs": "8000"}], {"audio": ["audio_fs", "rate_hz"]}),
        ([{"audio": {"path": "b.wav", "sampling_rate": 8000}, "text": "x"}], {"audio": ["sampling_rate"]}),
        ([asks(sound(sample_rate=8000))], {"audio": ["sample_rate"]}),
        ([{"segments": [{"audio": {"path": "b.wav", "rate_hz": 9}}, {"text": "x"}]}], {"audio": ["rate_hz"]}),
        ([{"audio": {"array": [0.5], "sampling_rate": 8000}, "text": "x"}], {}),
        ([{"image": {"path": "a.png", "rate_hz": 9}, "text": "x", "fs": 9}], {}),
        ([{"text": "x", "sampling_rate": 8000}], {}),
        ([{"audios": ["b.wav", {"path": "b.wav", "detail": "low"}], "text": "x"}], {"audio": ["detail"]}),
        ([{**SOUND, "use_image_in_audio": True}], WITHIN),
        ([{**SOUND, "use_image_in_audio": "True"}], WITHIN),
        ([asks(sound(use_image_in_audio=True))], WITHIN),
        ([{**SOUND, "use_image_in_audio": False}, asks(sound(use_image_in_audio="false"))], {}),
        ([{**SOUND, "image": "a.png", "use_image_in_audio": True}], {}),
        ([{**SOUND, "use_audio_in_video": True}], {}),
        ([asks({"type": "text", "text": "x", "fps": 2.0})], {}),
        ([{"text": "x"}, asks({"type": "video", "video": "a.mp4", "fps": 2.0})], {}),
        (
            [{"conversations": [{"from": "human", "value": [sound(fps=1)]}, {"from": "gpt", "value": "y"}]}],
            {"audio": ["fps"]},
        ),
    ],
)
def test_a_source_knows_the_wishes_of_its_usable_rows(open_, rows, rows_, found):
    source = open_(rows(*rows_))
    assert source.wishes == found
    assert len(source.document(0).segments) > 0


def test_wishes_are_recorded_with_what_else_was_found(open_, rows, tmp_path, monkeypatch):
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 0)
    path = rows(asks(sound(fps=2.0)))
    assert open_(path).wishes == open_(path).wishes == {"audio": ["fps"]}


def test_parts_in_a_parquet_table_have_every_key_and_wish_what_is_not_null(open_, rows, tmp_path):
    rows()
    chat = asks(sound(fps=2.0, nframes=None), {"type": "text", "text": "What?"})
    turns = [{"role": turn["role"], "content": turn["content"]} for turn in chat["messages"]]
    turns[1]["content"] = [{"type": "text", "text": "y"}]
    pq.write_table(pa.table({"messages": [turns]}), tmp_path / "a.parquet")
    assert open_(tmp_path / "a.parquet").wishes == {"audio": ["fps"]}


def test_columns_of_numbers_are_looked_at_in_tables_too(open_, rows, tmp_path):
    rows()
    pq.write_table(pa.table({"audio": ["b.wav"], "text": ["x"], "fps": [2.0]}), tmp_path / "a.parquet")
    assert open_(tmp_path / "a.parquet").wishes == {"audio": ["fps"]}
    (tmp_path / "a.csv").write_text("audio,text,fps\nb.wav,x,2\n")
    assert open_(tmp_path / "a.csv").wishes == {"audio": ["fps"]}


def test_a_column_that_is_in_use_holds_no_wish(open_, rows, tmp_path):
    row = {"audio": "b.wav", "fps": 2.0}
    assert open_(rows(row), columns={"text": "fps"}).wishes == {}
    assert open_(rows(row), template="[audio] How fast? → {fps}").wishes == {}
    assert open_(rows({**row, "text": "x"}), template="[audio] → {text}").wishes == {"audio": ["fps"]}


def test_what_is_wished_is_said_with_what_to_do():
    wishes = {"": ["fps"], "sound": ["sound_channel"], "film": ["nframes", "use_sound_in_film"], "ecg": ["fs"]}
    assert list(warnings_of("rows", {**wishes, "eeg": ["rate_Hz"]}, ["eeg"])) == [
        "rows: its rows say fps, which is not read; media are sampled alike, by modalities.NAME.processor (kosmos "
        "explain NAME tells its options)",
        "rows: its rows say sound_channel of sound, which is not read: a file is taken with all its channels; where "
        "one is meant, write it into a file of its own and name that",
        "rows: its rows say nframes of film, which is not read; all film is sampled alike, by "
        "modalities.film.processor (kosmos explain film tells its options)",
        "rows: its rows say use_sound_in_film, which is not read, so that nothing is learned of the sound; name each "
        'file of film as sound too ({"film": FILE, "sound": FILE}), in a run with both among its modalities',
        "rows: its rows say fs of ecg, which is not read; a file is read at the rate that it states, else as "
        "modalities.ecg.processor has it (kosmos explain ecg tells its options)",
        "rows: its rows say rate_Hz of eeg, which is not read; the object of a file states its rate, as rate_hz or "
        'sampling_rate ({"eeg": {"path": FILE, "rate_hz": N}})',
    ]


@hookimpl
def kosmos_modalities():
    for name, reads_rate in (("ecg", True), ("audio", False)):
        yield ModalitySpec(name=name, target="a:b", summary=name, encoder="c", has_time=True, reads_rate=reads_rate)


def _opened(path, modality):
    registry = Registry.from_modules(
        {"timed": SimpleNamespace(KOSMOS_API=1, __name__="timed", kosmos_modalities=kosmos_modalities)}, core=False
    )
    return open_source(str(path), registry=registry, split="train", modalities=(modality,), held_out=0.0)


@pytest.mark.parametrize(
    ("said", "rate_hz", "wishes"),
    [
        ({"rate_hz": 500}, 500, []),
        ({"sampling_rate": 250.0}, 250, []),
        ({"rate_hz": 500, "sampling_rate": 500}, 500, []),
        ({"rate_hz": "500"}, 500, []),
        ({"fs": 500}, None, ["fs"]),
        ({"rate_hz": None}, None, []),
    ],
)
def test_the_rate_of_a_file_reaches_who_reads_it_and_is_a_wish_of_others(rows, said, rate_hz, wishes):
    held = {"path": "b.wav", **said}
    for name, rate, told in (("ecg", rate_hz, wishes), ("audio", None, sorted(k for k in said if said[k] is not None))):
        path = rows({name: held, "text": "x"}, asks({"type": name, name: held}), asks({"type": name, **held}))
        source = _opened(path, name)
        found = [medium.rate_hz for row in range(3) for medium in source.document(row).media]
        assert (found, source.wishes) == ([rate] * 3, {name: told} if told else {})


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"rate_hz": -5}, "rate_hz: expected a number above 0, got -5"),
        ({"rate_hz": 0}, "rate_hz: expected a number above 0, got 0"),
        ({"rate_hz": math.nan}, "rate_hz: expected a number above 0, got nan"),
        ({"rate_hz": math.inf}, "rate_hz: expected a number above 0, got inf"),
        ({"sampling_rate": True}, "sampling_rate: expected a number, got True"),
        ({"rate_hz": "fast"}, "rate_hz: expected a number, got 'fast'"),
        ({"rate_hz": [500]}, r"rate_hz: expected a number, got \[500\]"),
        ({"rate_hz": 500, "sampling_rate": 250}, "rate_hz 500 and sampling_rate 250: two rates; leave one out"),
    ],
)
def test_a_rate_that_none_can_be_makes_a_bad_sample_where_it_is_read(rows, said, why):
    source = _opened(rows({"ecg": {"path": "b.wav", **said}, "text": "x"}), "ecg")
    with pytest.raises(SampleError, match=f"ecg: {why}$"):
        source.document(0)
    source = _opened(rows({"audio": {"path": "b.wav", **said}, "text": "x"}), "audio")
    (medium,) = source.document(0).media
    assert medium.rate_hz is None


@pytest.mark.parametrize("key", ["rate_Hz", "sampling rate", "Sample-Rate", "sample_rate", "fs", "ratehz", "sampling"])
def test_what_is_called_almost_as_a_rate_is_told_where_rates_are_read(rows, key):
    assert _opened(rows({"ecg": {"path": "b.wav", key: 500}, "text": "x"}), "ecg").wishes == {"ecg": [key]}
    assert _opened(rows({"ecg": {"path": "b.wav", "label": 500, "id": 3}, "text": "x"}), "ecg").wishes == {}
