"""What compressed sound states of its length is what decoding gives, and is believed only where it is."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kosmos.data.document import Media
from kosmos.errors import SampleError
from kosmos_audio.inputs import AudioInput
from kosmos_audio.lengths import Stated, stated_by_flac
from kosmos_audio.reading import open_header, open_sound
from kosmos_audio.waveform import AudioProcessor
from support.sounds import WAVEFORM, encoded, produce, tone, without_tag

RATES_HZ = {"VORBIS": (8000, 22_050, 44_100, 48_000), "OPUS": (8000, 16_000, 24_000, 48_000)}
MP3_RATES_HZ = (8000, 11_025, 16_000, 22_050, 32_000, 44_100, 48_000)  # MPEG 2.5, 2 and 1, each with its own frames
SIX_SECONDS = tone(6.0, 16_000)


def declared(source: bytes | Path) -> int | None:
    with open_sound(Media("audio", source), 1 << 30) as sound:
        return sound.declared


def decoded(data: bytes) -> int:
    frames = 0
    with soundfile.SoundFile(io.BytesIO(data)) as decoder:
        while count := len(decoder.read(1 << 16)):
            frames += count
    return frames


def noise(frames: int, channels: int) -> np.ndarray:
    return np.random.default_rng(frames).uniform(-0.3, 0.3, (frames, channels)).astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(["VORBIS", "OPUS", "MPEG_LAYER_III"]), st.integers(1, 40_000), st.integers(1, 2))
def test_what_is_stated_is_what_decoding_gives(data, subtype, frames, channels):
    rate_hz = data.draw(st.sampled_from(RATES_HZ.get(subtype, MP3_RATES_HZ)))
    format = "MP3" if subtype == "MPEG_LAYER_III" else "OGG"
    file = encoded(noise(frames, channels), rate_hz, format, subtype)
    assert declared(file) == decoded(file) > 0


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["PCM_S8", "PCM_16", "PCM_24"]), st.integers(1, 40_000), st.integers(1, 8),
    st.sampled_from((*MP3_RATES_HZ, 96_000, 192_000, 655_350)),
)  # fmt: skip
def test_a_flac_is_planned_by_its_first_bytes_as_libsndfile_reads_it(subtype, frames, channels, rate_hz):
    file = encoded(noise(frames, channels), rate_hz, "FLAC", subtype)
    with open_header(Media("audio", file), 1 << 30) as header, open_sound(Media("audio", file), 1 << 30) as sound:
        assert header == Stated(rate_hz, frames) == (sound.rate_hz, sound.declared)


@pytest.mark.parametrize("cut", [0, 3, 4, 25])
def test_a_flac_of_which_little_more_than_the_name_is_there_is_refused(cut):
    file = encoded(noise(100, 1), 8000, "FLAC", "PCM_16")[:cut]
    with pytest.raises(SampleError), open_header(Media("audio", file), 1 << 30):
        pass


@given(st.binary(min_size=22, max_size=22))
def test_any_header_of_a_flac_states_a_length_or_is_left_to_libsndfile(head):
    stated = stated_by_flac(io.BytesIO(b"fLaC\0\0\0\x22" + head))
    assert stated is None or (0 < stated.rate_hz < 1 << 20 and 0 < stated.declared < 1 << 36)


@pytest.mark.parametrize("mode", ["CONSTANT", "AVERAGE", "VARIABLE"])
def test_every_way_to_spend_bits_on_mp3_states_it(mode, tmp_path):
    soundfile.write(tmp_path / "a.mp3", noise(30_000, 2), 44_100, bitrate_mode=mode, compression_level=0.5)
    assert declared(tmp_path / "a.mp3") == decoded((tmp_path / "a.mp3").read_bytes()) == 30_000


def test_real_files_state_it(shared_data):
    files = [f for f in sorted(shared_data("audio").rglob("*")) if f.suffix in (".mp3", ".ogg", ".opus")]
    assert {f.suffix for f in files} >= {".mp3", ".ogg"}
    for file in files:
        assert declared(file) == decoded(file.read_bytes()), file


def test_tags_of_titles_around_an_mp3_change_nothing():
    mp3 = encoded(SIX_SECONDS, 16_000, "MP3")
    size = bytes((0, 0, 2, 5))  # of seven bits each
    titles = b"ID3\x04\x00\x00" + size + bytes(2 * 128 + 5)
    assert declared(titles + mp3 + b"TAG" + bytes(125)) == 96_000


TITLE = b"TAG" + bytes(125)
APE = b"APETAGEX\xd0\x07\0\0" + (32 + 9).to_bytes(4, "little") + b"\x01\0\0\0\0\0\0\x80" + bytes(8)
LYRICS = b"LYRICSBEGIN" + b"la" * 300 + b"000611LYRICS200"


@pytest.mark.parametrize(
    "behind",
    [
        TITLE,
        APE + b"\0\0\0\0Genre\0" + APE + TITLE,
        LYRICS + TITLE,
        b"ID3\x04\0\0\0\0\0\x40" + bytes(64),
        bytes(70_000),
    ],
    ids=["ID3v1", "APE", "Lyrics3", "ID3v2", "zeros"],
)
def test_tags_behind_an_mp3_that_states_no_length_are_no_sound(behind):
    mp3 = without_tag(encoded(SIX_SECONDS, 16_000, "MP3"))
    _, alone = produce(AudioProcessor(WAVEFORM), Media("audio", mp3))
    _, tagged = produce(AudioProcessor(WAVEFORM), Media("audio", mp3 + behind))
    assert np.array_equal(tagged, alone)


def test_what_is_no_frame_inside_an_mp3_that_states_no_length_is_damage():
    mp3 = without_tag(encoded(noise(96_000, 1), 16_000, "MP3"))
    media = Media("audio", mp3[:10_000] + b"U" * 3000 + mp3[10_000:])
    with pytest.raises(SampleError, match="audio is broken after sample"):
        AudioProcessor(WAVEFORM).plan(media)


@pytest.mark.parametrize("between", [b"", TITLE + b"ID3\x04\0\0\0\0\0\x40" + bytes(64)], ids=["nothing", "tags"])
def test_mp3s_that_were_joined_are_all_heard(between):
    """The tag of the first states the first alone, and libsndfile ends there."""
    mp3 = encoded(SIX_SECONDS, 16_000, "MP3")
    joined = mp3 + between + mp3
    assert decoded(joined) == 96_000, "libsndfile reads them all now"
    plan, _ = produce(AudioProcessor(WAVEFORM), Media("audio", joined))
    assert 2 * 96_000 <= plan.recipe.stop < 2 * 96_000 + 4000


def test_an_mp3_whose_tag_states_no_frames_is_heard_to_its_end():
    mp3 = bytearray(encoded(SIX_SECONDS, 16_000, "MP3"))
    at = max(mp3.find(b"Info"), mp3.find(b"Xing")) + 8
    mp3[at : at + 4] = bytes(4)
    plan, _ = produce(AudioProcessor(WAVEFORM), Media("audio", bytes(mp3)))
    assert decoded(bytes(mp3)) != 96_000, "libsndfile does not guess any more"
    assert 96_000 <= plan.recipe.stop < 96_000 + 2000


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_an_mp3_cut_short_is_not_believed_and_its_rest_is_heard(share):
    mp3 = encoded(SIX_SECONDS, 16_000, "MP3")
    rest = mp3[: int(share * len(mp3))]
    assert declared(rest) is None
    plan, _ = produce(AudioProcessor(WAVEFORM), Media("audio", rest))
    assert plan.recipe.stop == decoded(rest) < 96_000


@pytest.mark.parametrize("loud_first", [True, False])
def test_an_mp3_without_a_tag_is_heard_to_its_end(loud_first):
    """libsndfile guesses its length by the bytes of the first frame, and ends there."""
    halves = [noise(96_000, 1)[:, 0], np.zeros(96_000, np.float32)]
    file = io.BytesIO()
    samples = np.concatenate(halves if loud_first else halves[::-1])
    soundfile.write(file, samples, 16_000, format="MP3", bitrate_mode="VARIABLE")
    mp3 = without_tag(file.getvalue())
    assert declared(mp3) is None
    plan, _ = produce(AudioProcessor(WAVEFORM), Media("audio", mp3))
    assert 192_000 <= plan.recipe.stop < 195_000  # what encoders put before and behind is heard too
    if loud_first:
        assert decoded(mp3) < 150_000, "libsndfile reads it to its end now"


def wav_that_states(nbytes: int, *, between: bytes = b"") -> bytes:
    """A WAV of 6 s, 192,000 bytes, with ``between`` in front of the samples, whose header states so many bytes."""
    wav = encoded(SIX_SECONDS, 16_000, "WAV", "PCM_16")
    at = wav.index(b"data")
    if nbytes == 0:  # libsndfile reads such a file where this is what an empty one states
        wav = wav[:4] + struct.pack("<I", 8) + wav[8:]
    return wav[:at] + between + b"data" + struct.pack("<I", nbytes) + wav[at + 8 :]


@pytest.mark.parametrize("nbytes", [0, 0xFFFFFFFF, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 192_000, 192_002, 195_000])
def test_a_wav_whose_length_nobody_knew_and_one_a_few_bytes_short_are_heard(nbytes):
    """Whoever writes to a pipe cannot go back to the header."""
    plan, _ = produce(AudioProcessor(WAVEFORM), Media("audio", wav_that_states(nbytes)))
    assert plan.recipe.stop == 96_000


@pytest.mark.parametrize("between", [b"", b"LIST\x03\0\0\0abc\0" * 5])
def test_a_wav_cut_short_is_refused_as_it_is_planned(between, tmp_path):
    (tmp_path / "a.wav").write_bytes(wav := wav_that_states(384_000, between=between))
    for source in (wav, tmp_path / "a.wav"):
        with pytest.raises(SampleError, match=r"cut short: its header states 12\.000 s, 6\.000 s are there"):
            AudioProcessor(WAVEFORM).plan(Media("audio", source))


def test_an_ogg_cut_short_states_what_is_there():
    ogg = encoded(noise(96_000, 1), 16_000, "OGG")
    rest = ogg[: len(ogg) // 2]
    plan, _ = produce(AudioProcessor(WAVEFORM), Media("audio", rest))
    assert declared(rest) == plan.recipe.stop == decoded(rest) < 96_000


def test_an_ogg_with_holes_is_a_sample_error_where_samples_are_missing():
    pages = [b"OggS" + page for page in encoded(noise(480_000, 1), 16_000, "OGG").split(b"OggS")[1:]]
    processor, refused = AudioProcessor(WAVEFORM), 0
    for hole in range(4, len(pages) - 2, 3):
        media = Media("audio", b"".join([*pages[:hole], *pages[hole + 2 :]]))
        plan = processor.plan(media)
        if (there := decoded(media.source)) < 480_000:
            refused += 1
            with pytest.raises(SampleError, match=rf"audio declares 480000 samples, only {there} can be decoded"):
                processor.decode(media, plan)
    assert refused > 2


def test_files_that_state_their_length_are_planned_without_decoding_them(tmp_path):
    processor = AudioProcessor(WAVEFORM)
    for name in ("a.mp3", "a.ogg"):
        (tmp_path / name).write_bytes(encoded(SIX_SECONDS, 16_000, name[2:].upper()))
        assert processor.plan(Media("audio", tmp_path / name)).recipe.stop == 96_000
    assert not processor.limits._counts


def m4a(
    samples: np.ndarray,
    rate_hz: int,
    codec: str = "aac",
    container: str = "mp4",
    options: dict[str, str] | None = None,
    begins_at: Callable[[int], int] = int,
) -> bytes:
    """
    Args:
        begins_at: by the place of a frame of 1,024 samples, the time of it.
    """
    file = io.BytesIO()
    with av.open(file, "w", format=container, options=options or {}) as out:
        stream = out.add_stream(codec, rate=rate_hz, layout="mono")
        for place in range(0, len(samples), 1024):
            part = np.ascontiguousarray(samples[place : place + 1024].reshape(1, -1))
            frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = rate_hz, begins_at(place), Fraction(1, rate_hz)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return file.getvalue()


def by_ffmpeg(data: bytes) -> np.ndarray:
    with av.open(io.BytesIO(data)) as container:
        return np.concatenate([frame.to_ndarray().mean(axis=0) for frame in container.decode(audio=0)])


@settings(max_examples=15, deadline=None)
@example("aac", 13_309, 44_100)  # states an end behind its last packet, so that it is counted
@given(st.sampled_from(["aac", "alac"]), st.integers(5000, 60_000), st.sampled_from([16_000, 44_100, 48_000]))
def test_an_m4a_holds_as_much_as_it_states_where_it_is_believed(codec, frames, rate_hz):
    file = m4a(noise(frames, 1), rate_hz, codec)
    plan, _ = produce(AudioProcessor(WAVEFORM), Media("audio", file))
    assert declared(file) in (None, plan.recipe.stop)
    # An edit list passes over the encoder's own delay, and counts in milliseconds.
    assert frames - rate_hz // 1000 <= plan.recipe.stop <= frames + (1024 if codec == "aac" else 0)


@pytest.mark.parametrize(("codec", "frames", "rate_hz"), [("aac", 13_300, 44_100), ("alac", 30_000, 16_000)])
def test_an_m4a_is_believed(codec, frames, rate_hz):
    assert declared(m4a(noise(frames, 1), rate_hz, codec)) is not None


def test_a_late_clip_of_an_m4a_is_that_part_of_the_whole(tmp_path):
    rate_hz = 16_000
    (tmp_path / "a.m4a").write_bytes(m4a(noise(40 * rate_hz, 1), rate_hz))
    start, stop = 31 * rate_hz + 7, 35 * rate_hz
    with open_sound(Media("audio", tmp_path / "a.m4a"), 1 << 30) as sound:
        whole = np.concatenate([block for _, block in sound.blocks(0)])
    with open_sound(Media("audio", tmp_path / "a.m4a"), 1 << 30) as sound:
        blocks = list(sound.blocks(start))
    first = blocks[0][0]
    assert 0 <= start - 10 * rate_hz - first <= 2048
    heard = np.concatenate([block for _, block in blocks])[start - first : stop - first]
    assert np.array_equal(heard, whole[start:stop])


def test_containers_that_round_times_are_counted():
    assert declared(m4a(SIX_SECONDS, 16_000, container="matroska")) is None


FRAGMENTS = {
    "each with its own times": "frag_keyframe+empty_moov",
    "behind an edit list": "frag_keyframe+empty_moov+delay_moov",
    "listed": "dash",
}


@pytest.mark.parametrize("flags", FRAGMENTS.values(), ids=FRAGMENTS)
@pytest.mark.parametrize("codec", ["aac", "alac"])
def test_m4a_in_fragments_is_heard_to_its_end(codec, flags):
    """Their headers state samples that an edit list leaves out; of a list of fragments only the first has been read."""
    samples, options = noise(13 * 16_000, 1), {"movflags": flags, "frag_duration": "1000000"}
    file = m4a(samples, 16_000, codec, options=options)
    plan, cells = produce(AudioProcessor(WAVEFORM), Media("audio", file))
    assert 13 * 16_000 <= plan.recipe.stop <= 13 * 16_000 + 2048
    _, clip = produce(AudioProcessor(WAVEFORM), Media("audio", file, clip=(11.0, 12.0)))
    assert np.array_equal(clip.ravel(), cells.ravel()[11 * 16_000 : 12 * 16_000])


@pytest.mark.parametrize(
    ("codec", "rate_hz"), [("mp2", 16_000), ("libmp3lame", 16_000), ("ac3", 32_000), ("libopus", 48_000)]
)
@pytest.mark.parametrize("options", [{}, {"movflags": "frag_keyframe+delay_moov"}], ids=["whole", "in fragments"])
def test_other_codecs_in_mp4_are_counted(codec, rate_hz, options):
    file = m4a(np.tile(noise(rate_hz, 1), (13, 1)), rate_hz, codec, options=options)
    assert declared(file) is None
    expected = by_ffmpeg(file)
    processor = AudioProcessor(
        AudioInput(features="waveform", sample_rate_hz=rate_hz, samples_per_cell=320, normalization="none")
    )
    plan, _ = produce(processor, Media("audio", file))
    assert plan.recipe.stop == len(expected)
    _, heard = produce(processor, Media("audio", file, clip=(11.0, 12.0)))
    assert np.abs(heard.ravel() - expected[11 * rate_hz : 12 * rate_hz]).max() < 1e-6


@pytest.mark.parametrize(
    "begins_at",
    [lambda place: place + 500 * (place > 40_000), lambda place: place + 20 * (place // 1024 % 2)],
    ids=["a gap", "times that were rounded"],
)
def test_an_m4a_whose_packets_do_not_follow_each_other_is_counted(begins_at):
    file = m4a(noise(6 * 16_000, 1), 16_000, begins_at=begins_at)
    assert declared(file) is None
    plan, _ = produce(AudioProcessor(WAVEFORM), Media("audio", file))
    assert plan.recipe.stop == len(by_ffmpeg(file))


@pytest.mark.parametrize(("passed_over", "seconds"), [(2112, 12.0), (3 * 16_000, 11.0), (1024, 2.0), (1024, 99.0)])
def test_an_m4a_is_heard_as_its_edit_list_says(passed_over, seconds):
    file = bytearray(m4a(noise(16 * 16_000, 1), 16_000))
    entry = file.index(b"elst") + 12
    file[entry : entry + 8] = struct.pack(">Ii", round(1000 * seconds), passed_over)
    plan, cells = produce(AudioProcessor(WAVEFORM), Media("audio", bytes(file)))
    there = by_ffmpeg(bytes(file))
    assert plan.recipe.stop == (len(there) if seconds == 99 else round(seconds * 16_000))
    assert np.array_equal(cells.ravel()[: plan.recipe.stop], there[: plan.recipe.stop])
    if len(there) > 11 * 16_000:
        _, clip = produce(AudioProcessor(WAVEFORM), Media("audio", bytes(file), clip=(10.5, 11.0)))
        assert np.array_equal(clip.ravel(), there[round(10.5 * 16_000) : 11 * 16_000])


def test_an_m4a_cut_short_is_refused_as_it_is_planned():
    whole = m4a(
        noise(6 * 16_000, 1), 16_000, options={"movflags": "frag_keyframe+empty_moov", "frag_duration": "9000000"}
    )
    rest = whole[: len(whole) * 2 // 3]
    assert declared(whole) is not None and declared(rest) is None
    with pytest.raises(SampleError, match="audio is broken after sample 6"):
        AudioProcessor(WAVEFORM).plan(Media("audio", rest))
