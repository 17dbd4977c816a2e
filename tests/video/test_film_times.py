"""When frames of films are shown, and where films and clips end."""

from __future__ import annotations

import io
from fractions import Fraction

import av
import numpy as np
import pytest

from kosmos import ConfigError, Media, SampleError
from kosmos_video.container import Header, Limits, read_header
from kosmos_video.decoding import frames_at
from kosmos_video.fitting import Fit
from kosmos_video.frames import VideoProcessor
from support.films import CLIP, Picture, encoded, numbered, shown

LIMITS = Limits(1 << 30, 1 << 24, 1000)


def mp4(frames, times_ms, form="mp4", codec="libx264rgb", **more):
    out = io.BytesIO()
    with av.open(out, "w", format=form) as c:
        s = c.add_stream(codec, rate=10)
        s.height, s.width, s.pix_fmt = *frames[0].shape[:2], "rgb24" if codec == "libx264rgb" else "yuv444p"
        s.options = {"qp": "0", "bf": "0"}
        s.codec_context.time_base = Fraction(1, 1000)
        for a, at in zip(frames, times_ms, strict=True):
            f = av.VideoFrame.from_ndarray(a, format="rgb24").reformat(format=s.pix_fmt)
            f.pts, f.time_base = at, Fraction(1, 1000)
            c.mux(s.encode(f))
        c.mux(s.encode(None))
    return out.getvalue()


@pytest.mark.parametrize("form", ["matroska", "mov", "mpegts"])
def test_a_film_that_begins_late_is_that_film(form):
    frames = list(numbered(10, 64, 64) * 20)
    times = [5_000 + 100 * i for i in range(10)]
    film = encoded(frames, times) if form == "matroska" else mp4(frames, times, form, "libx264")
    header = read_header(film, LIMITS)
    assert header.duration_s == pytest.approx(1.0, abs=0.11)
    found = frames_at(film, [0.0, 0.35, 0.85], Fit((64, 64)), header, LIMITS)
    assert [round(float(f.mean()) / 20) for f in found] == [0, 3, 8]


def test_a_program_stream_is_as_long_as_its_film_and_not_as_ffmpeg_guesses():
    out = io.BytesIO()
    with av.open(out, "w", format="mpeg") as container:
        film, sound = container.add_stream("mpeg1video", rate=25), container.add_stream("mp2", rate=16_000)
        film.height, film.width, film.pix_fmt = 64, 64, "yuv420p"
        for number in range(150):
            shade = np.full((64, 64, 3), number, np.uint8)
            container.mux(film.encode(av.VideoFrame.from_ndarray(shade, format="rgb24").reformat(format="yuv420p")))
            samples = np.zeros((1, 640), np.int16)
            frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
            frame.rate, frame.pts = 16_000, 640 * number
            container.mux(sound.encode(frame))
        container.mux([*film.encode(None), *sound.encode(None)])
    data = out.getvalue()
    header = read_header(data, LIMITS)
    assert header.duration_s == pytest.approx(6.0, abs=0.05)
    first, last = frames_at(data, [0.0, 5.96], Fit((64, 64)), header, LIMITS)
    assert first.mean() < 3 and last.mean() == pytest.approx(149, abs=3)


def test_rounded_times_show_every_frame_once():
    film = encoded(list(numbered(12)), [round(1000 * i / 30) for i in range(12)])
    processor = VideoProcessor(Picture(), frame_rate_hz=30.0)
    assert shown(processor, Media("video", film))[:12] == list(range(12))


def test_times_behind_the_end_are_refused():
    film = encoded(list(numbered(10)), [100 * i for i in range(10)])
    with pytest.raises(SampleError, match="frames end at"):
        frames_at(film, [0.0, 1.5], Fit((16, 24)), Header(1.6, 16, 24, 16), LIMITS)


def test_a_clip_beyond_the_end_is_refused():
    media = Media("video", numbered(20), clip=(1.0, 3.0), rate_hz=10.0)
    with pytest.raises(SampleError, match="does not lie in"):
        VideoProcessor(Picture()).plan(media)
    VideoProcessor(Picture()).plan(Media("video", numbered(20), clip=(1.0, 2.4), rate_hz=10.0))


def test_a_clip_that_ends_a_little_late_ends_with_the_film():
    media = Media("video", numbered(20), clip=(1.0, 2.4), rate_hz=10.0)
    plan = VideoProcessor(Picture(), num_frames=5).plan(media)
    assert max(plan.recipe.times_s) < 2.0
    assert shown(VideoProcessor(Picture(), num_frames=5), media) == [11, 13, 15, 17, 19]


def test_marks_of_close_frames_differ():
    plan = VideoProcessor(Picture(), frame_rate_hz=25.0).plan(Media("video", numbered(10), rate_hz=25.0))
    marks = [p for p in plan.layout if isinstance(p, str)]
    assert len(set(marks)) == len(marks)


def test_films_sampled_at_their_own_odd_rate_show_every_frame_once():
    film = numbered(40)
    for rate in (7.3, 29.97, 23.976, 11.1, 59.94):
        processor = VideoProcessor(Picture(), frame_rate_hz=rate)
        assert shown(processor, Media("video", film, rate_hz=rate)) == list(range(40))


def test_clips_count_with_all_their_frames():
    with pytest.raises(ConfigError, match="max_frames 256: every film takes 320 frames"):
        VideoProcessor(CLIP, num_clips=40)
