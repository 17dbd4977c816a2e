"""Codecs, clips of them, and limits."""

from __future__ import annotations

import io
import os
import tracemalloc

import av
import numpy as np
import pytest
import soundfile
from PIL import Image

from kosmos.data.document import Media
from kosmos.errors import ConfigError, SampleError
from kosmos_audio.inputs import AudioInput
from kosmos_audio.reading import _mono, open_sound
from kosmos_audio.resample import resample
from kosmos_audio.waveform import AudioProcessor
from support.sounds import WAVEFORM, encoded, opus_of_ffmpeg, produce, tone, without_tag

LOGMEL = AudioInput()


@pytest.mark.parametrize(
    ("format", "subtype"), [("WAV", "GSM610"), ("WAV", "G721_32"), ("AU", "G721_32"), ("WAV", "NMS_ADPCM_16")]
)
def test_clips_of_telephone_codecs_that_cannot_seek_are_those_of_the_whole(format: str, subtype: str) -> None:
    rate_hz = 8000
    data = encoded(tone(1.0, rate_hz), rate_hz, format, subtype)
    processor = AudioProcessor(WAVEFORM)
    whole, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    _, cells = produce(processor, Media("audio", data, clip=(0.5, 0.75)))
    _, expected = produce(processor, Media("audio", whole[4000:6000], rate_hz=rate_hz))
    assert np.array_equal(cells, expected)


def test_silence_of_few_bytes_is_not_decoded_into_gigabytes() -> None:
    data = encoded(np.zeros(1_000_000, np.int16), 655_350, "FLAC")
    assert len(data) < 10_000
    with pytest.raises(SampleError, match=r"has 1000000 samples at 655350 Hz, the limit is 900000 \(max_samples\)"):
        AudioProcessor(LOGMEL, max_samples=900_000).plan(Media("audio", data))
    produce(AudioProcessor(LOGMEL, max_samples=900_000), Media("audio", data, clip=(0.5, 1.0)))
    with pytest.raises(ConfigError, match="max_samples: expected a positive number, got 0"):
        AudioProcessor(LOGMEL, max_samples=0)


def test_a_high_rate_takes_no_more_memory_to_resample_than_a_low_one() -> None:
    peaks = []
    for rate_hz in (44_101, 767_999):
        samples = np.zeros(1_500_000, np.float32)
        resample(samples[:1000], rate_hz, 16_000)  # its kernel stays
        tracemalloc.start()
        resample(samples, rate_hz, 16_000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.parametrize("format", ["MP3", "OGG"])
def test_a_clip_of_compressed_sound_is_that_part_of_the_whole(format):
    noise = np.random.default_rng(0).standard_normal(64_000).astype(np.float32) / 5
    file, processor = encoded(noise, 16_000, format), AudioProcessor(WAVEFORM)
    _, whole = produce(processor, Media("audio", file))
    _, clip = produce(processor, Media("audio", file, clip=(1.0, 3.0)))
    assert np.array_equal(clip.ravel(), whole.ravel()[16_000:48_000])


@pytest.mark.parametrize(
    ("format", "subtype", "rate_hz", "off"),
    # MP3 adds up in another order behind a seek: 1.2e-7 was measured on an hour.
    [("OGG", "VORBIS", 44_100, 0.0), ("OGG", "OPUS", 24_000, 0.0), ("MP3", "MPEG_LAYER_III", 16_000, 2.5e-7)],
)
def test_a_late_clip_of_compressed_sound_is_decoded_from_shortly_before_it(format, subtype, rate_hz, off, tmp_path):
    times = np.arange(40 * rate_hz) / rate_hz
    loudness = np.sin(times) * np.random.default_rng(0).uniform(0.1, 0.5, len(times))
    samples = (loudness * np.sin(440 * times * (1 + np.sin(0.2 * times)))).astype(np.float32)
    (tmp_path / "a").write_bytes(encoded(samples, rate_hz, format, subtype))
    whole, _ = soundfile.read(tmp_path / "a", dtype="float32")
    start, stop = 31 * rate_hz + 7, 35 * rate_hz
    with open_sound(Media("audio", tmp_path / "a"), 1 << 30) as sound:
        blocks = list(sound.blocks(start))
    first = blocks[0][0]
    assert first == start - 10 * rate_hz
    heard = np.concatenate([block for _, block in blocks])[start - first : stop - first]
    assert np.abs(heard - whole[start:stop]).max() <= off
    assert np.abs(whole[start:stop]).max() > 0.1


@pytest.mark.parametrize("begin_s", [0, 2])
def test_what_ffmpeg_put_in_front_of_an_opus_is_dropped(begin_s):
    """libsndfile 1.2.2 gives the first 65,536 samples 312 late where nobody sought in it."""
    heard = np.random.default_rng(0).standard_normal(4 * 48_000).astype(np.float32) / 10
    file = opus_of_ffmpeg(heard)
    with av.open(io.BytesIO(file)) as container:
        expected = np.concatenate([frame.to_ndarray()[0] for frame in container.decode(audio=0)])
    with open_sound(Media("audio", file), 1 << 30) as sound:
        blocks = list(sound.blocks(begin_s * 48_000))
    first, samples = blocks[0][0], np.concatenate([block for _, block in blocks])
    assert first + len(samples) == len(expected) == len(heard)
    assert np.abs(samples - expected[first:]).max() < 1e-6  # 2.4e-7 was measured; 0.5 without


def test_bytes_reach_from_minus_one():
    with open_sound(Media("audio", np.array([0, 128, 255], np.uint8), rate_hz=16_000), 1000) as sound:
        [(_, block)] = sound.blocks(0)
    assert block.tolist() == [-1.0, 0.0, 127 / 128]


@pytest.mark.parametrize("codec", ["pcm_s16le", "aac"])
def test_channels_that_ffmpeg_gives_interleaved_are_averaged(codec, tmp_path):
    left, right = tone(1.0, 16_000), tone(1.0, 16_000, 880.0)
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = container.add_stream(codec, rate=16_000, layout="stereo")
        samples = (np.stack([left, right], 1) * 32767).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="stereo")
        frame.sample_rate = 16_000
        container.mux([*stream.encode(frame), *stream.encode(None)])
    _, cells = produce(AudioProcessor(WAVEFORM), Media("audio", tmp_path / "a.mkv"))
    assert abs(cells.size - 16_000) < 2_100
    if codec != "aac":
        assert np.abs(cells.ravel()[:16_000] - (left + right) / 2).max() < 1e-3


def test_a_flac_that_states_no_length_is_counted():
    file = bytearray(encoded(tone(2.0, 16_000), 16_000, "FLAC"))
    file[21] &= 0xF0  # STREAMINFO: 36 bits of the number of samples
    file[22:26] = bytes(4)
    _, cells = produce(AudioProcessor(WAVEFORM), Media("audio", bytes(file)))
    assert cells.size == 32_000


def test_a_file_of_another_rate_than_planned_is_refused(tmp_path):
    file, processor = tmp_path / "a.wav", AudioProcessor(WAVEFORM)
    file.write_bytes(encoded(tone(1.0, 16_000), 16_000))
    plan = processor.plan(Media("audio", file))
    file.write_bytes(encoded(tone(2.0, 8_000), 8_000))
    with pytest.raises(SampleError, match="changed since it was planned: 16000 Hz then, 8000 Hz now"):
        processor.decode(Media("audio", file), plan)


def test_a_file_of_another_size_and_the_same_time_is_counted_again(tmp_path):
    file, processor = tmp_path / "a.mp3", AudioProcessor(WAVEFORM)
    found = []
    for seconds in (1.0, 2.0):
        file.write_bytes(without_tag(encoded(tone(seconds, 16_000), 16_000, "MP3")))
        os.utime(file, ns=(0, 0))
        found.append(processor.plan(Media("audio", file)).cells)
    assert 45 < found[1] - found[0] < 55


def test_an_array_over_the_limit_of_bytes_is_refused():
    with pytest.raises(SampleError, match="the limit is 100"):
        AudioProcessor(WAVEFORM, max_bytes=100).plan(Media("audio", np.zeros(200, np.float32), rate_hz=16_000))


def test_a_sound_track_of_an_unknown_codec_is_a_sample_error(tmp_path):
    with av.open(str(tmp_path / "a.m4a"), "w", format="mp4") as container:
        stream = container.add_stream("alac", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16_000), np.int16), format="s16p", layout="mono")
        frame.sample_rate = 16_000
        container.mux([*stream.encode(frame), *stream.encode(None)])
    file = (tmp_path / "a.m4a").read_bytes().replace(b"alac", b"zzzz")
    with pytest.raises(SampleError, match="FFmpeg has no decoder for the sound track"):
        AudioProcessor(WAVEFORM).plan(Media("audio", file))


def test_a_picture_is_told_to_be_no_sound_and_a_damaged_header_to_be_damage() -> None:
    Image.new("RGB", (8, 8)).save(picture := io.BytesIO(), "PNG")
    with av.open(sound := io.BytesIO(), "w", format="tta") as container:
        stream = container.add_stream("tta", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16_000), np.int16), format="s16", layout="mono")
        frame.sample_rate = 16_000
        container.mux([*stream.encode(frame), *stream.encode(None)])
    damaged = bytearray(sound.getvalue())
    damaged[damaged.index(b"TTA1") + 25] = 255  # the size of a frame becomes negative
    said = "audio cannot be opened: not sound of a kind that libsndfile or FFmpeg reads, or damaged"
    for source in (picture.getvalue(), bytes(damaged)):
        with pytest.raises(SampleError, match=said):
            AudioProcessor(LOGMEL).plan(Media("audio", source))


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_several_channels_are_their_mean_to_the_bit(channels):
    frames = np.random.default_rng(0).standard_normal((1000, channels)).astype(np.float32)
    frames[:3] = [[3e38], [1e-45], [np.inf]]
    with np.errstate(over="ignore"):
        assert np.array_equal(_mono(frames), frames.mean(axis=1, dtype=np.float32))
