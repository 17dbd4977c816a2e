"""Clips of a film's sound track are those of its pictures, wherever either track begins."""

from __future__ import annotations

import io
from fractions import Fraction

import av
import numpy as np
import pytest

from kosmos.data.document import Media
from kosmos.errors import SampleError
from kosmos_audio.waveform import AudioProcessor
from support.sounds import WAVEFORM, produce, tone

RATE_HZ = 16_000
SOUND = tone(2.0, RATE_HZ)


def film(pictures_at_s: float, sound_at_s: float, *, cover: bool = False) -> bytes:
    """Three seconds of pictures, and two of sound, beginning at these times."""
    out = io.BytesIO()
    with av.open(out, "w", format="matroska") as container:
        pictures = container.add_stream("ffv1", rate=10)
        pictures.width = pictures.height = 16
        if cover:
            pictures.disposition = av.stream.Disposition.attached_pic
        sound = container.add_stream("pcm_s16le", rate=RATE_HZ)
        sound.layout = "mono"
        for number in range(30):
            picture = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24").reformat(
                format="bgr0"
            )
            picture.pts, picture.time_base = number + round(pictures_at_s * 10), Fraction(1, 10)
            container.mux(pictures.encode(picture))
        for first in range(0, len(SOUND), 1600):
            part = (SOUND[None, first : first + 1600] * 32767).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(part, format="s16", layout="mono")
            frame.rate, frame.pts, frame.time_base = RATE_HZ, first + round(sound_at_s * RATE_HZ), Fraction(1, RATE_HZ)
            container.mux(sound.encode(frame))
        for stream in (pictures, sound):
            container.mux(stream.encode(None))
    return out.getvalue()


@pytest.mark.parametrize(
    ("pictures_at_s", "sound_at_s", "begin_s"),
    [(0.0, 0.0, 1.5), (0.0, 1.0, 0.5), (0.5, 0.0, 2.0 - 0.25), (3.0, 4.0, 0.5), (0.0, 0.05, 1.5)],
)
def test_a_clip_is_of_the_same_time_as_the_pictures(pictures_at_s: float, sound_at_s: float, begin_s: float) -> None:
    """The last begins so little later that an encoder may have put it in front."""
    clip = (1.5, 1.75) if begin_s != 1.75 else (1.25, 1.5)
    _, cells = produce(AudioProcessor(WAVEFORM), Media("audio", film(pictures_at_s, sound_at_s), clip=clip))
    begin = round(begin_s * RATE_HZ)
    expected = SOUND[begin : begin + RATE_HZ // 4]
    assert np.abs(cells.ravel()[: len(expected)] - expected).max() < 1e-4  # of 16 bits: 3e-5


def test_of_a_clip_that_begins_before_the_sound_only_the_sound_is_there() -> None:
    data = film(0.0, 1.0)
    _, cells = produce(AudioProcessor(WAVEFORM), Media("audio", data, clip=(0.5, 1.25)))
    assert np.abs(cells.ravel()[: RATE_HZ // 4] - SOUND[: RATE_HZ // 4]).max() < 1e-4
    with pytest.raises(SampleError, match=r"audio holds no samples in the clip 0-0\.9 s"):
        AudioProcessor(WAVEFORM).plan(Media("audio", data, clip=(0.0, 0.9)))


@pytest.mark.parametrize(("sound_at_s", "clip", "seconds"), [(0.0, (1.5, 3.0), 0.5), (1.0, (2.0, 3.4), 1.0)])
def test_of_a_clip_that_ends_with_the_film_the_sound_that_is_there(sound_at_s, clip, seconds) -> None:
    """A track may end before its film does."""
    plan, _ = produce(AudioProcessor(WAVEFORM), Media("audio", film(0.0, sound_at_s), clip=clip))
    assert (plan.recipe.stop - plan.recipe.start) / RATE_HZ == seconds


def test_a_clip_beyond_the_film_is_refused() -> None:
    with pytest.raises(SampleError, match=r"clip 1-3\.6 s does not lie in the audio's 0-3\.\d\d\d s"):
        AudioProcessor(WAVEFORM).plan(Media("audio", film(0.0, 0.0), clip=(1.0, 3.6)))


def test_without_a_clip_a_track_is_whole() -> None:
    _, cells = produce(AudioProcessor(WAVEFORM), Media("audio", film(0.0, 1.0)))
    assert np.abs(cells.ravel()[: len(SOUND)] - SOUND).max() < 1e-4


def test_a_picture_on_the_cover_has_no_time() -> None:
    _, cells = produce(AudioProcessor(WAVEFORM), Media("audio", film(0.0, 1.0, cover=True), clip=(1.5, 1.75)))
    assert np.abs(cells.ravel()[: RATE_HZ // 4] - SOUND[-RATE_HZ // 2 : -RATE_HZ // 4]).max() < 1e-4
