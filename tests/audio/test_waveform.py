"""What is planned is what is produced, for sound of every kind."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kosmos.data.document import Media
from kosmos.errors import ConfigError, SampleError
from kosmos_audio.inputs import AudioInput
from kosmos_audio.reading import BLOCK, open_sound
from kosmos_audio.waveform import AudioProcessor
from support.sounds import WAVEFORM, adts, encoded, produce, tone, without_tag

LOGMEL = AudioInput()
INPUTS = {"logmel": LOGMEL, "waveform": WAVEFORM}


@settings(max_examples=60, deadline=None)
@given(
    rate_hz=st.sampled_from([4000, 8000, 11025, 16000, 22050, 44100, 48000]) | st.integers(100, 96_000),
    samples=st.integers(1, 6000),
    channels=st.integers(1, 3),
    features=st.sampled_from(sorted(INPUTS)),
    span_s=st.sampled_from([0.1, 0.5, 30.0]),
)
def test_planned_cells_are_produced_for_any_rate_length_and_channels(
    rate_hz: int, samples: int, channels: int, features: str, span_s: float
) -> None:
    values = np.random.default_rng(samples).standard_normal((samples, channels)).astype(np.float32) / 5
    processor = AudioProcessor(INPUTS[features], span_s=span_s)
    plan, _ = produce(processor, Media("audio", values, rate_hz=rate_hz))
    resampled = -(-samples * 16_000 // rate_hz)
    assert plan.cells == -(-resampled // processor.input.samples_per_cell)
    assert all(1 <= grid.t <= processor.max_cells for grid in plan.grids)


def files_of(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    return [(folder / row["audio"], row) for row in rows if "audio" in row]


@pytest.mark.parametrize(("part", "every"), [("audio/speech", 1), ("audio/esc10", 5), ("audio/fsdd", 20)])
@pytest.mark.parametrize("features", sorted(INPUTS))
def test_planned_cells_are_produced_for_real_recordings(
    part: str, every: int, features: str, shared_data: Callable[[str], Path]
) -> None:
    processor = AudioProcessor(INPUTS[features])
    for path, _ in files_of(shared_data(part))[::every]:
        from_path, cells = produce(processor, Media("audio", path))
        from_bytes, same = produce(processor, Media("audio", path.read_bytes()))
        assert from_path == from_bytes
        assert np.array_equal(cells, same), path


@pytest.mark.parametrize("features", sorted(INPUTS))
def test_corner_cases_decode_or_are_refused_as_their_manifest_says(
    features: str, shared_data: Callable[[str], Path]
) -> None:
    processor = AudioProcessor(INPUTS[features])
    outcomes = {}
    for path, _ in files_of(shared_data("corner")):
        try:
            produce(processor, Media("audio", path))
            outcomes[path.name] = "yes"
        except SampleError:
            outcomes[path.name] = "no"
    expected = {path.name: row["decodes"] for path, row in files_of(shared_data("corner"))}
    # Its header states 3,547 samples, 1,167 are there: the text is of the whole.
    assert expected.pop("truncated.wav") == "partly"
    assert outcomes.pop("truncated.wav") == "no"
    assert outcomes == expected


def test_truncated_wav_is_a_sample_error(shared_data: Callable[[str], Path]) -> None:
    path = shared_data("corner") / "audio/truncated.wav"
    for source in (path, path.read_bytes()):
        with pytest.raises(SampleError, match=r"cut short: its header states 0\.443 s, 0\.146 s are there"):
            AudioProcessor(LOGMEL).plan(Media("audio", source))


def test_truncated_flac_is_a_sample_error() -> None:
    noise = np.random.default_rng(0).standard_normal(16_000).astype(np.float32) / 10
    media = Media("audio", encoded(noise, 16_000, "FLAC")[:10_000])
    processor = AudioProcessor(LOGMEL)
    with pytest.raises(SampleError, match=r"16000 samples|broken"):
        processor.decode(media, processor.plan(media))


@pytest.mark.parametrize(("format", "subtype"), [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")])
@pytest.mark.parametrize("keep", [1.0, 0.7, 0.35])
def test_compressed_sound_is_planned_by_what_decoding_gives(format: str, subtype: str, keep: float) -> None:
    data = encoded(tone(1.5, 16_000), 16_000, format, subtype)
    media = Media("audio", data[: int(len(data) * keep)])
    processor = AudioProcessor(WAVEFORM)
    try:
        produce(processor, media)
    except SampleError:
        assert keep < 1


def test_spans_of_long_sound_sum_to_the_exact_length() -> None:
    samples = tone(7.77, 8000)
    split, cells = produce(AudioProcessor(WAVEFORM, span_s=2.0), Media("audio", samples, rate_hz=8000))
    whole, expected = produce(AudioProcessor(WAVEFORM), Media("audio", samples, rate_hz=8000))
    assert [grid.t for grid in split.grids] == [98, 97, 97, 97]  # 7.77 s * 50 cells = 388.5
    assert split.layout[0] == "<audio>"
    assert split.layout[-1] == "</audio>"
    assert np.array_equal(cells, expected)
    assert len(whole.grids) == 1
    assert not cells.reshape(-1)[2 * len(samples) :].any()


def test_spans_of_log_mel_do_not_see_each_other() -> None:
    samples = tone(4.0, 16_000)
    other = samples.copy()
    other[32_000:] = 0
    processor = AudioProcessor(LOGMEL, span_s=2.0)
    _, cells = produce(processor, Media("audio", samples, rate_hz=16_000))
    _, changed = produce(processor, Media("audio", other, rate_hz=16_000))
    assert np.array_equal(cells[:50], changed[:50])
    assert not np.array_equal(cells[50:], changed[50:])


def test_the_encoder_s_own_limit_holds() -> None:
    limited = AudioInput(samples_per_cell=320, max_cells=20)
    plan = AudioProcessor(limited).plan(Media("audio", tone(1.0, 16_000), rate_hz=16_000))
    assert [grid.t for grid in plan.grids] == [17, 17, 16]


def test_long_sound_is_refused_where_it_may_not_be_split() -> None:
    processor = AudioProcessor(LOGMEL, span_s=1.0, long_audio="refuse")
    processor.plan(Media("audio", tone(1.0, 8000), rate_hz=8000))
    with pytest.raises(SampleError, match=r"26 cells .*span holds 25"):
        processor.plan(Media("audio", tone(1.01, 8000), rate_hz=8000))


@pytest.mark.parametrize("format", ["WAV", "MP3"])
def test_sound_past_the_limit_of_seconds_is_refused_and_a_clip_of_it_is_not(format: str) -> None:
    data = encoded(tone(3.0, 16_000), 16_000, format)
    processor = AudioProcessor(LOGMEL, max_duration_s=1.0)
    with pytest.raises(SampleError, match=r"audio is 3\.\d s, over max_duration_s 1; cut it by a clip"):
        processor.plan(Media("audio", data))
    plan, _ = produce(processor, Media("audio", data, clip=(1.5, 2.5)))
    assert plan.cells == 25


def test_files_past_the_limit_of_bytes_are_refused(tmp_path: Path) -> None:
    data = encoded(tone(1.0, 16_000), 16_000)
    (tmp_path / "sound.wav").write_bytes(data)
    processor = AudioProcessor(LOGMEL, max_bytes=10_000)
    for source in (data, tmp_path / "sound.wav", tone(1.0, 16_000)):
        with pytest.raises(SampleError, match="limit is 10000"):
            processor.plan(Media("audio", source, rate_hz=16_000))


@pytest.mark.parametrize("format", ["WAV", "FLAC", "OGG"])
def test_a_clip_holds_the_samples_between_its_seconds(format: str) -> None:
    samples = tone(2.0, 16_000) * np.linspace(0, 1, 32_000, dtype=np.float32)
    data = encoded(samples, 16_000, format)
    processor = AudioProcessor(WAVEFORM)
    _, whole = produce(processor, Media("audio", data))
    plan, clip = produce(processor, Media("audio", data, clip=(0.5, 1.25)))
    assert plan.recipe[:2] == (8000, 20_000)
    assert np.array_equal(clip.reshape(-1)[:12_000], whole.reshape(-1)[8000:20_000])


@pytest.mark.parametrize("clip", [(2.0, 1.0), (-1.0, 1.0), (0.0, float("nan")), (5.0, 6.0)])
def test_clips_that_hold_nothing_are_sample_errors(clip: tuple[float, float]) -> None:
    with pytest.raises(SampleError, match="clip"):
        AudioProcessor(LOGMEL).plan(Media("audio", tone(2.0, 16_000), clip=clip, rate_hz=16_000))


@pytest.mark.parametrize("format", ["array", "WAV", "FLAC", "OGG", "MP3", "MP3 without a tag", "ADTS"])
@pytest.mark.parametrize("clip", [(1.0, 2.8), (0.5, 60.0), (0.5, 1e9), (2.6, 3.0)])
def test_a_clip_beyond_the_end_is_refused_by_the_length_that_is_there(format: str, clip: tuple[float, float]) -> None:
    with pytest.raises(SampleError, match=r"clip .* s does not lie in the audio's 0-2\.\d\d\d s"):
        AudioProcessor(LOGMEL).plan(Media("audio", two_seconds(format), clip=clip, rate_hz=16_000))


@pytest.mark.parametrize("format", ["array", "WAV", "FLAC", "OGG", "MP3", "MP3 without a tag", "ADTS"])
def test_the_end_of_a_clip_may_be_rounded(format: str) -> None:
    """By half a second, as with films; what is there is planned."""
    processor = AudioProcessor(WAVEFORM)
    whole, _ = produce(processor, Media("audio", two_seconds(format), rate_hz=16_000))
    plan, _ = produce(processor, Media("audio", two_seconds(format), clip=(1.0, 2.4), rate_hz=16_000))
    assert plan.recipe[:2] == (16_000, whole.recipe.stop)


def test_of_a_clip_beyond_the_limit_of_seconds_nobody_counts_to_its_end() -> None:
    media = Media("audio", two_seconds("MP3 without a tag"), clip=(0.0, 60.0))
    with pytest.raises(SampleError, match="audio is longer than 1 s, over max_duration_s 1"):
        AudioProcessor(LOGMEL, max_duration_s=1).plan(media)


def two_seconds(format: str) -> Any:
    samples = tone(2.0, 16_000)
    match format:
        case "array":
            return samples
        case "MP3 without a tag":
            return without_tag(encoded(samples, 16_000, "MP3"))
        case "ADTS":
            return adts(samples, 16_000)
    return encoded(samples, 16_000, format)


def test_channels_are_averaged_and_whole_numbers_scaled() -> None:
    left = np.array([0, 16_384, -32_768, 8192] * 100, dtype=np.int16)
    stereo = np.stack((left, np.zeros_like(left)), axis=1)
    _, cells = produce(AudioProcessor(WAVEFORM), Media("audio", stereo, rate_hz=16_000))
    assert cells.reshape(-1)[:4].tolist() == [0.0, 0.25, -0.5, 0.125]
    _, decoded = produce(AudioProcessor(WAVEFORM), Media("audio", encoded(stereo, 16_000)))
    assert np.array_equal(cells, decoded)


def test_sound_inside_a_video_file_is_heard(shared_data: Callable[[str], Path]) -> None:
    path = next(iter(sorted((shared_data("video") / "grid").rglob("*.mp4"))))
    plan, cells = produce(AudioProcessor(WAVEFORM), Media("audio", path))
    assert 100 < plan.cells < 200
    assert cells.std() > 0.001


@pytest.mark.parametrize(
    ("values", "rate_hz", "cause"),
    [
        (np.zeros(0, np.float32), 8000, "no samples"),
        (np.full(9, np.nan, np.float32), 8000, "not finite"),
        (np.full(9, 1e300), 8000, "not finite"),
        (np.full(900, 1e30, np.float32), 16_000, r"floats from -1 to 1, got samples that reach 1e\+30; divide"),
        (np.array([0.0, -32_768.0]), 16_000, "floats from -1 to 1, got samples that reach 32768; divide"),
        (np.zeros((2, 2, 2), np.float32), 8000, "expected floats"),
        (np.zeros(9, bool), 8000, "expected floats"),
        (np.array([0, 1000, -1000]), 8000, "expected floats, int16, int32 or uint8 .*, got int64"),
        (np.zeros(9, np.int8), 8000, "expected floats, int16, int32 or uint8 .*, got int8"),
        (np.zeros(9, np.uint16), 8000, "expected floats, int16, int32 or uint8 .*, got uint16"),
        (np.zeros(9, complex), 8000, "expected floats, int16, int32 or uint8 .*, got complex128"),
        (np.zeros((2, 900), np.float32), 8000, "channels"),
        (np.zeros(9, np.float32), None, "sample rate"),
        (np.zeros(9, np.float32), 0, "sample rate"),
        (np.zeros(9, np.float32), 8000.5, "sample rate"),
        (np.zeros(9, np.float32), -8000, "sample rate of 1 to 768000 Hz, got -8000"),
        (np.zeros(9, np.float32), float("nan"), "sample rate of 1 to 768000 Hz, got nan"),
        (np.zeros(9, np.float32), np.float64("inf"), "sample rate of 1 to 768000 Hz, got inf"),
        (np.zeros(9, np.float32), np.int64(0), "sample rate of 1 to 768000 Hz, got 0"),
    ],
)
def test_arrays_that_are_no_sound_are_sample_errors(values: NDArray[Any], rate_hz: float | None, cause: str) -> None:
    processor = AudioProcessor(LOGMEL)
    media = Media("audio", values, rate_hz=rate_hz)
    with pytest.raises(SampleError, match=cause):
        processor.decode(media, processor.plan(media))


@pytest.mark.parametrize("kind", ["<i2", ">i2", "<i4", ">i4", "u1", "<f2", ">f4", "f8"])
def test_samples_of_any_agreed_kind_are_the_same_sound(kind: str) -> None:
    sound = np.array([0.0, 0.5, -0.5, -1.0] * 80)
    scale, zero = {"i2": (2**15, 0), "i4": (2**31, 0), "u1": (128, 128)}.get(kind[-2:], (1, 0))
    processor = AudioProcessor(WAVEFORM)
    media = Media("audio", (sound * scale + zero).astype(kind), rate_hz=WAVEFORM.sample_rate_hz)
    assert np.array_equal(processor.decode(media, processor.plan(media)).ravel(), sound)


@pytest.mark.parametrize("kind", [np.uint16, np.int64, np.float16, np.float32, np.float64])
def test_a_rate_may_be_a_number_of_numpy(kind: type[np.number[Any]]) -> None:
    processor = AudioProcessor(LOGMEL)
    rates: tuple[Any, ...] = (8000, kind(8000))
    given, same = (Media("audio", np.linspace(-1, 1, 900), rate_hz=rate_hz) for rate_hz in rates)
    assert np.array_equal(processor.decode(given, processor.plan(given)), processor.decode(same, processor.plan(same)))


def test_files_that_are_not_there_are_sample_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.wav", tmp_path):
        with pytest.raises(SampleError):
            AudioProcessor(LOGMEL).plan(Media("audio", path))


def test_options_that_make_no_sense_are_config_errors() -> None:
    for options in ({"span_s": 0}, {"max_bytes": -1}, {"max_duration_s": float("nan")}, {"span_s": 0.01}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            AudioProcessor(LOGMEL, **options)


def test_damaged_bytes_are_refused_or_produce_what_was_planned() -> None:
    rng = np.random.default_rng(0)
    formats = [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", None), ("AIFF", "PCM_16")]
    processor = AudioProcessor(WAVEFORM)
    for format, subtype in formats:
        whole = np.frombuffer(encoded(tone(0.3, 16_000), 16_000, format, subtype), np.uint8)
        for _ in range(15):
            data = whole.copy()
            data[rng.integers(len(data), size=8)] = rng.integers(256, size=8)
            try:
                produce(processor, Media("audio", data.tobytes()))
            except SampleError:
                continue


def test_what_stands_behind_damage_is_read(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    """Of some damaged pages libsndfile gives fewer samples than were asked for, and more at the next call."""
    shorter = 0
    for file in sorted(shared_data("audio/esc10").rglob("*.ogg"))[:3]:
        whole = np.frombuffer(file.read_bytes(), np.uint8)
        for place in range(5_000, len(whole), 4_001):
            data = whole.copy()
            data[place] ^= 0xFF
            (tmp_path / "damaged.ogg").write_bytes(data.tobytes())
            frames: list[int] = []
            try:
                with soundfile.SoundFile(tmp_path / "damaged.ogg") as decoder:
                    while count := len(decoder.read(BLOCK)):
                        frames.append(count)
            except soundfile.LibsndfileError:
                continue
            shorter += any(count < BLOCK for count in frames[:-1])
            with open_sound(Media("audio", tmp_path / "damaged.ogg"), 1 << 30) as sound:
                found = sum(len(block) for _, block in sound.blocks(0))
            assert found == sum(frames)
    assert shorter, "no file shows what is tested here"


def test_a_file_that_only_ffmpeg_knows_is_opened_by_it(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    with av.open(tmp_path / "a.m4a", "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(tone(1.0, 16_000)[None], format="fltp", layout="mono")
        frame.sample_rate = 16_000
        container.mux([*stream.encode(frame), *stream.encode(None)])
    before = len(os.listdir("/proc/self/fd"))
    plan, cells = produce(AudioProcessor(WAVEFORM), Media("audio", tmp_path / "a.m4a"))
    assert abs(plan.recipe.stop - 16_000) <= 2048
    assert np.abs(cells).max() > 0.1
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("kind", ["uint16", ">u2", "uint32", "uint64"])
def test_unsigned_samples_that_have_no_agreed_zero_are_refused(kind: str) -> None:
    media = Media("audio", np.full(16_000, 20_000, kind), rate_hz=16_000)
    with pytest.raises(SampleError, match="expected floats, int16, int32 or uint8"):
        AudioProcessor(WAVEFORM).plan(media)


PLAN_ALONE = """
import sys
import tracemalloc
from pathlib import Path
from kosmos.data.document import Media
from kosmos_audio import plugin
from kosmos_audio.inputs import AudioInput
from kosmos_audio.reading import BLOCK, open_sound
from kosmos_audio.resample import resample
from kosmos_audio.waveform import AudioProcessor
processor = AudioProcessor(AudioInput())
plans = [processor.plan(Media("audio", Path(p))) for p in sys.argv[1:]]
cells = [processor.decode(Media("audio", Path(p)), plan) for p, plan in zip(sys.argv[1:], plans)]
assert not {"torch", "torchaudio", "transformers"} & set(sys.modules), "too heavy"
print(plans)
"""


def test_plans_are_the_same_in_another_process_without_torch(tmp_path: Path) -> None:
    for name in ("a.wav", "b.mp3", "c.ogg"):
        soundfile.write(tmp_path / name, tone(1.3, 22_050), 22_050)
    paths = sorted(tmp_path.iterdir())
    run = subprocess.run([sys.executable, "-c", PLAN_ALONE, *map(str, paths)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    processor = AudioProcessor(LOGMEL)
    assert run.stdout.strip() == str([processor.plan(Media("audio", path)) for path in paths])


def test_processors_travel_to_spawned_workers() -> None:
    processor = AudioProcessor(LOGMEL, span_s=1.0)
    media = Media("audio", tone(2.0, 8000), rate_hz=8000)
    plan, cells = produce(processor, media)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(processor.plan, (media,)) == plan
        assert np.array_equal(pool.apply(processor.decode, (media, plan)), cells)


def test_a_file_without_a_stated_length_is_counted_once_and_again_when_it_changes(tmp_path: Path) -> None:
    file, processor = tmp_path / "a.mp3", AudioProcessor(LOGMEL)
    for number, seconds in enumerate((1, 2), start=1):
        file.write_bytes(without_tag(encoded(tone(seconds, 16_000), 16_000, "MP3")))
        plans = [processor.plan(Media("audio", file)) for _ in range(2)]
        assert plans[0] == plans[1]
        assert plans[0].recipe.stop > seconds * 16_000  # what the encoder put before and behind it is heard
        assert len(processor.limits._counts) == number


def test_a_file_over_the_limit_is_not_counted_to_its_end(tmp_path: Path) -> None:
    file, processor = tmp_path / "a.mp3", AudioProcessor(LOGMEL, max_duration_s=1.0)
    file.write_bytes(without_tag(encoded(tone(20, 16_000), 16_000, "MP3")))
    with pytest.raises(SampleError, match="longer than 1 s"):
        processor.plan(Media("audio", file))
    assert processor.limits._counts == {}
