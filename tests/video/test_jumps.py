"""Frames that are found by jumping to keyframes are those of decoding from the start."""

from __future__ import annotations

import io
from fractions import Fraction
from functools import cache
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kosmos import Media, SampleError
from kosmos_video import decoding
from kosmos_video.container import Header, Limits, read_header
from kosmos_video.decoding import frames_at, keyframe_before
from kosmos_video.fitting import Fit
from kosmos_video.frames import VideoProcessor
from support.films import Picture

SIZE = (48, 64)
RATE_HZ = 25
FRAMES = 320
LIMITS = Limits(1 << 30, 1 << 24, 1000)

FILMS = {
    "mp4, H.264": ("mp4", "libx264", {"bf": "2"}),
    "mp4, H.264, frames before a keyframe are shown after it": (
        "mp4", "libx264", {"x264-params": "open-gop=1:keyint=40:min-keyint=40:bframes=3"},
    ),
    "mkv, H.264, the same": ("matroska", "libx264", {"x264-params": "open-gop=1:keyint=40:bframes=3"}),
    "mp4, H.264, without keyframes": ("mp4", "libx264", {"x264-params": "intra-refresh=1:keyint=40"}),
    "mp4, H.265": ("mp4", "libx265", {"x265-params": "keyint=40:open-gop=1:log-level=none"}),
    "mp4, in fragments": ("mp4", "libx264", {"movflags": "frag_keyframe+empty_moov"}),
    "webm, VP8": ("webm", "libvpx", {"deadline": "realtime", "cpu-used": "8"}),
    "mov, MPEG-2": ("mov", "mpeg2video", {}),
    "avi, MPEG-4": ("avi", "mpeg4", {}),
    "MPEG program stream": ("mpeg", "mpeg2video", {}),
}  # fmt: skip


@cache
def film(name: str, begins_at: int = 0) -> bytes:
    """Every frame is another."""
    form, codec, options = FILMS[name]
    noise = np.random.default_rng(0).integers(0, 255, (SIZE[0], 2 * SIZE[1], 3), dtype=np.uint8)
    out = io.BytesIO()
    of_form = {key: value for key, value in options.items() if key == "movflags"}
    with av.open(out, "w", format=form, options=of_form) as container:
        stream = container.add_stream(codec, rate=RATE_HZ)
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        stream.codec_context.gop_size = 40
        stream.options = {key: value for key, value in options.items() if key != "movflags"}
        for number in range(FRAMES):
            moved = np.roll(noise, 3 * number, axis=1)[:, : SIZE[1]].copy()
            moved[:16, :16] = number % 250
            frame = av.VideoFrame.from_ndarray(moved, format="rgb24").reformat(format="yuv420p")
            frame.pts, frame.time_base = begins_at + number, Fraction(1, RATE_HZ)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


def from_the_start(data: bytes | Path, times_s: list[float], header: Header, limits: Limits = LIMITS) -> np.ndarray:
    return decoding._shown(data, lambda header: times_s, Fit(SIZE), header, limits, jumps=False)


@pytest.mark.parametrize("name", FILMS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times_s=st.lists(st.floats(0, (FRAMES - 1) / RATE_HZ), min_size=1, max_size=6))
def test_jumps_show_the_frames_of_decoding_from_the_start(name, times_s):
    header = read_header(film(name), LIMITS)
    found = frames_at(film(name), times_s, Fit(SIZE), header, LIMITS)
    assert np.array_equal(found, from_the_start(film(name), times_s, header))


def test_real_films_show_the_frames_of_decoding_from_the_start(shared_data, monkeypatch):
    monkeypatch.setattr(decoding, "FEWEST_SKIPPED", 2)  # they are short
    files = [f for f in sorted(shared_data("video").rglob("*")) if f.suffix in (".mp4", ".mkv", ".mpg")]
    assert len(files) > 20
    for file in files[::3]:
        header = read_header(file, LIMITS)
        wanted = [share * header.duration_s for share in (0.1, 0.45, 0.5, 0.93)]
        expected = from_the_start(file, wanted, header)
        assert np.array_equal(frames_at(file, wanted, Fit(SIZE), header, LIMITS), expected), file.name


@pytest.mark.parametrize("name", ["mp4, H.264", "mkv, H.264, the same", "webm, VP8", "mp4, in fragments"])
def test_what_lies_between_is_not_decoded(name):
    header = read_header(film(name), LIMITS)
    few = Limits(1 << 30, 1 << 24, 130)  # of 320; at most 40 and a few lie between a keyframe and a time
    frames_at(film(name), [0.5, 6.0, 12.0], Fit(SIZE), header, few)
    with pytest.raises(SampleError, match="more than max_source_frames 130"):
        from_the_start(film(name), [0.5, 6.0, 12.0], header, few)


@pytest.mark.parametrize("name", ["mp4, H.264", "mkv, H.264, the same"])
def test_a_film_that_begins_late_is_that_film_behind_a_jump(name):
    late = film(name, begins_at=1000)
    header = read_header(late, LIMITS)
    assert header.duration_s == pytest.approx(FRAMES / RATE_HZ, abs=0.1)
    found = frames_at(late, [1.0, 9.0], Fit(SIZE), header, LIMITS)
    assert np.array_equal(found, from_the_start(late, [1.0, 9.0], header))


def test_a_film_whose_end_is_missing_is_refused_as_by_decoding_from_the_start():
    whole = film("mkv, H.264, the same")
    header, cut = read_header(whole, LIMITS), whole[: len(whole) * 2 // 3]
    assert np.array_equal(
        frames_at(cut, [0.2, 5.0], Fit(SIZE), header, LIMITS), frames_at(whole, [0.2, 5.0], Fit(SIZE), header, LIMITS)
    )
    with pytest.raises(SampleError, match="but its frames end at") as jumped:
        frames_at(cut, [0.2, 12.0], Fit(SIZE), header, LIMITS)
    with pytest.raises(SampleError) as plain:
        from_the_start(cut, [0.2, 12.0], header)
    assert str(jumped.value) == str(plain.value)


def test_a_film_of_an_unknown_codec_is_a_sample_error_that_says_so():
    with pytest.raises(SampleError, match="FFmpeg has no decoder for the video track"):
        read_header(film("mp4, H.264").replace(b"avc1", b"zzzz"), LIMITS)


@pytest.mark.parametrize("how", [{"num_frames": 4}, {"num_frames": 4, "time_marks": False}])
@pytest.mark.parametrize(
    ("name", "lists_keyframes"),
    [
        ("mp4, H.264", True),
        ("mkv, H.264, the same", True),
        ("webm, VP8", True),
        ("avi, MPEG-4", False),
        ("MPEG program stream", False),
    ],
)
def test_a_clip_far_into_a_film_is_limited_by_what_has_to_be_decoded(name, lists_keyframes, how):
    clip = Media("video", film(name), clip=(10.0, 11.0))
    processor, patient = (VideoProcessor(Picture(), max_duration_s=limit, **how) for limit in (3.0, 600.0))
    expected = patient.decode(clip, patient.plan(clip))
    if lists_keyframes:
        assert np.array_equal(processor.decode(clip, processor.plan(clip)), expected)
        clip = Media("video", film(name), clip=(6.0, 11.0))
    raised = r"over max_duration_s 3; raise modalities\.video\.processor\.max_duration_s"
    decoded = "" if lists_keyframes else r" and decoded from 0\.0 s on, as no keyframe is nearer"
    said = rf"sampled up to 10\.\d s{decoded}, {raised}{' or give a shorter clip' if lists_keyframes else ''}$"
    with pytest.raises(SampleError, match=said):
        processor.decode(clip, processor.plan(clip))


@pytest.mark.parametrize("name", ["mp4, H.264", "mkv, H.264, the same", "webm, VP8"])
def test_the_keyframe_at_which_decoding_begins_is_known_without_decoding(name):
    found = [keyframe_before(film(name, begins_at=at), 10.0, LIMITS) for at in (0, 1000)]
    assert all(10.0 - 40 / RATE_HZ <= at_s <= 10.0 for at_s in found)
