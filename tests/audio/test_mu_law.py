"""The codec mu-law: samples as codes of eight bits, and a WAV of them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from torchaudio.functional import mu_law_encoding

from kosmos import ConfigError, Media, SampleError
from kosmos_audio.codecs.mu_law import MuLawCodec
from support.sounds import encoded, tone


def test_every_code_comes_back_from_the_file_that_is_made_of_it() -> None:
    codes = np.random.default_rng(0).permutation(256)
    made = MuLawCodec().decode(codes)
    assert made.suffix == ".wav"
    assert np.array_equal(MuLawCodec().encode(Media("audio", made.content)), codes)


def test_codes_are_those_of_torchaudio() -> None:
    samples = np.arange(-(1 << 15), 1 << 15, dtype=np.int16)
    codes = MuLawCodec(max_duration_s=10).encode(Media("audio", samples, rate_hz=8000))
    expected = mu_law_encoding(torch.from_numpy(samples / 32768), 256).numpy()
    assert np.array_equal(codes, expected)
    assert (codes[0], codes[1 << 15], codes[-1]) == (0, 128, 255)


def test_a_sound_comes_back_finer_where_it_is_quiet() -> None:
    samples = tone(0.5, 8000) * np.linspace(0.002, 1.0, 4000, dtype=np.float32)
    codec = MuLawCodec()
    heard, rate_hz = soundfile.read(
        io.BytesIO(codec.decode(codec.encode(Media("audio", samples, rate_hz=8000))).content)
    )
    off = np.abs(heard - samples)
    assert (rate_hz, len(heard)) == (8000, 4000)
    assert off[:500].max() < 0.002 < off.max() < 0.012  # half a step at 0.5: 0.5 ln(256) / 255 = 0.011


def test_louder_than_full_scale_is_cut_off() -> None:
    samples = np.array([2.0, -2.0], np.float32)
    assert MuLawCodec().encode(Media("audio", samples, rate_hz=8000)).tolist() == [255, 0]


@pytest.mark.parametrize(
    ("rate_hz", "samples", "codes"), [(8000, 80, 80), (16_000, 81, 41), (44_100, 441, 80), (48_000, 1, 1)]
)
def test_a_sound_of_any_rate_has_a_code_for_each_sample_of_the_codec_s(rate_hz: int, samples: int, codes: int) -> None:
    media = Media("audio", np.zeros((samples, 2), np.float32), rate_hz=rate_hz)
    assert MuLawCodec().encode(media).tolist() == [128] * codes
    assert len(MuLawCodec(rate_hz=rate_hz).encode(media)) == samples


def test_a_clip_is_that_stretch() -> None:
    file = encoded(tone(1.0, 8000), 8000, "FLAC")
    whole = MuLawCodec().encode(Media("audio", file))
    assert np.array_equal(MuLawCodec().encode(Media("audio", file, clip=(0.25, 0.5))), whole[2000:4000])


def test_what_is_over_a_limit_is_refused_before_it_is_decoded() -> None:
    two_s = encoded(tone(2.0, 8000), 8000)
    said = (
        r"audio is 2\.0 s, over max_duration_s 1; cut it by a clip in its row, or raise modalities\.audio\.codec\.max_"
    )
    with pytest.raises(SampleError, match=said):
        MuLawCodec(max_duration_s=1).encode(Media("audio", two_s))
    assert len(MuLawCodec(max_duration_s=1).encode(Media("audio", two_s, clip=(1.0, 2.0)))) == 8000


def test_the_longest_sound_is_decoded_and_encoded_again() -> None:
    codec = MuLawCodec(rate_hz=1000, max_duration_s=0.0105)
    codes = codec.encode(Media("audio", tone(0.0105, 8000), rate_hz=8000))
    assert len(codes) == 11  # of 84 samples at 8 kHz
    again = codec.encode(Media("audio", codec.decode(codes).content))
    assert np.array_equal(again, codes[:10])  # the limit lies within the last
    with pytest.raises(SampleError, match=r"over max_duration_s 0\.0105"):
        codec.decode(np.zeros(12, np.int64))


def test_a_sound_that_does_not_state_its_length_is_counted_and_then_read() -> None:
    whole = MuLawCodec().encode(Media("audio", encoded(tone(1.0, 8000), 8000, "FLAC")))
    file = bytearray(encoded(tone(1.0, 8000), 8000, "FLAC"))
    file[21] &= 0xF0  # STREAMINFO: 36 bits of the number of samples
    file[22:26] = bytes(4)
    assert np.array_equal(MuLawCodec().encode(Media("audio", bytes(file))), whole)


@pytest.mark.parametrize("codes", [[], [-1, 3], [3, 256]])
def test_what_are_no_codes_is_no_sound(codes: list[int]) -> None:
    with pytest.raises(SampleError, match="expected codes from 0 to 255, and at least one"):
        MuLawCodec().decode(np.array(codes, np.int64))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rate_hz": 0}, "rate_hz: expected 1 to 768000, got 0"),
        ({"rate_hz": 1_000_000}, "rate_hz: expected 1 to 768000"),
        ({"max_duration_s": 0}, "max_duration_s: expected a positive number, got 0"),
        ({"max_duration_s": float("nan")}, "max_duration_s: expected a positive number, got nan"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        MuLawCodec(**options)


def test_it_can_be_pickled() -> None:
    codec = pickle.loads(pickle.dumps(MuLawCodec(rate_hz=4000)))
    media = Media("audio", tone(0.1, 8000), rate_hz=8000)
    assert np.array_equal(codec.encode(media), MuLawCodec(rate_hz=4000).encode(media))


BROKEN = ("empty_file.mp3", "incomplete.mp3", "invalid_sample_rate.aiff", "invalid_streaminfo.flac", "not_media.wav")


@pytest.mark.parametrize("name", [*BROKEN, "zero_samples.wav", "no_such_file.wav"])
def test_a_file_that_is_no_sound_is_a_bad_sample(name: str, shared_data: Callable[[str], Path]) -> None:
    with pytest.raises(SampleError):
        MuLawCodec().encode(Media("audio", shared_data("corner") / "audio" / name))


@pytest.mark.parametrize(
    "samples", [np.array([np.nan], np.float32), np.zeros(0, np.float32), np.ones(4, np.float32) * 99]
)
def test_an_array_that_is_no_sound_is_a_bad_sample(samples: np.ndarray) -> None:
    with pytest.raises(SampleError, match="audio"):
        MuLawCodec().encode(Media("audio", samples, rate_hz=8000))


@pytest.mark.parametrize(
    "name", ["fsdd/theo", "speech/LJ001-0002.mp3", "speech/jfk.flac", "speech/nasa_13013.mp3", "esc10/rooster"]
)
def test_real_sounds_come_back(name: str, clips: Path) -> None:
    found = clips / name
    file = found if found.is_file() else sorted(found.iterdir())[0]
    codec = MuLawCodec()
    codes = codec.encode(Media("audio", file, clip=(0.0, 0.25)))
    assert len(codes) == 2000 and len(np.unique(codes)) > 8
    assert np.array_equal(codec.encode(Media("audio", codec.decode(codes).content)), codes)


@pytest.mark.parametrize("name", ["opus_8khz.opus", "audio_only_aac.mp4", "mulaw_stereo.aifc", "one_sample.wav"])
def test_files_of_other_kinds_are_read_as_encoders_read_them(name: str, shared_data: Callable[[str], Path]) -> None:
    codec = MuLawCodec(max_duration_s=60)
    codes = codec.encode(Media("audio", shared_data("corner") / "audio" / name))
    assert np.array_equal(codec.encode(Media("audio", codec.decode(codes).content)), codes)
