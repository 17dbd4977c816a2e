"""Frames brought to the encoder's size: stretched, cut, or with margins."""

from __future__ import annotations

import io
import re
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos import ConfigError, Media
from kosmos_video.fitting import Fit, fit_array
from kosmos_video.frames import VideoProcessor
from kosmos_vision.images import ImageInput, ImageProcessor
from support.films import CLIP, encoded

COLOURS = ImageInput((8, 8), (32, 24), mean=(0.48, 0.45, 0.4))
WIDE, TALL, NEAR = (40, 160), (150, 30), (64, 50)


def smooth(height: int, width: int) -> np.ndarray:
    """A picture of slow changes, of which any two good filters make the same within a few levels."""
    y, x = np.mgrid[:height, :width]
    red, green = 40 + 170 * y / (height - 1), 30 + 190 * x / (width - 1)
    return np.stack([red, green, 255 - (red + green) / 2], axis=2).round().astype(np.uint8)


def of_film(media: Media, **options: Any) -> np.ndarray:
    """[H, W, 3] of the film's first frame."""
    processor = VideoProcessor(COLOURS, num_frames=1, **options)
    return whole(processor.decode(media, processor.plan(media)))


def of_picture(picture: np.ndarray, resize: Any) -> np.ndarray:
    processor = ImageProcessor(COLOURS, resize=resize)
    media = Media("image", picture)
    return whole(processor.decode(media, processor.plan(media)))


def whole(cells: np.ndarray) -> np.ndarray:
    return cells.reshape(4, 3, 3, 8, 8).transpose(0, 3, 1, 4, 2).reshape(32, 24, 3)


@pytest.mark.parametrize("size", [WIDE, TALL, NEAR])
@pytest.mark.parametrize("resize", ["squash", "pad", "crop"])
def test_a_frame_becomes_what_the_same_picture_becomes(resize: str, size: tuple[int, int]) -> None:
    picture = smooth(*size)
    expected = of_picture(picture, resize).astype(int)
    array, film = Media("video", picture[None], rate_hz=1.0), Media("video", encoded([picture], [0]))
    for media in (array, film):
        found = of_film(media, resize=resize).astype(int)
        # Measured: 2 levels of 255; cut 4, since it is cut between whole new pixels.
        assert np.abs(found - expected).max() <= (4 if resize == "crop" else 2), (resize, size)
    assert np.array_equal(of_film(array), of_film(array, resize="squash"))
    assert not np.array_equal(of_film(array), of_film(array, resize="pad"))


def test_margins_have_the_encoders_mean_colour() -> None:
    padded = of_film(Media("video", encoded([smooth(*WIDE)], [0])), resize="pad")
    assert (padded[0] == [round(255 * mean) for mean in COLOURS.mean]).all()
    assert (of_picture(smooth(*WIDE), "pad")[0] == padded[0]).all()


def test_clips_of_a_clip_encoder_get_margins_too() -> None:
    film = np.full((8, 20, 80, 3), 255, np.uint8)
    processor, media = VideoProcessor(CLIP, resize="pad"), Media("video", film, rate_hz=8.0)
    cells = processor.decode(media, processor.plan(media))
    rows = cells.reshape(2, 3, 2, 3, 4, 16, 16)[..., 0].transpose(1, 5, 0, 2, 3, 4).reshape(48, -1)
    assert [int(row[0]) for row in rows] == [128] * 20 + [255] * 8 + [128] * 20
    assert (rows == rows[:, :1]).all()


def test_a_film_that_is_shown_wider_than_it_is_stored_keeps_the_shape_that_is_shown() -> None:
    """Stored as 48 x 32 with pixels twice as wide as high, it is shown as 48 x 64."""
    with av.open(file := io.BytesIO(), "w", format="mov") as container:
        stream = container.add_stream("qtrle", rate=30)
        stream.height, stream.width, stream.pix_fmt = 48, 32, "rgb24"
        stream.codec_context.sample_aspect_ratio = Fraction(2)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((48, 32, 3), 255, np.uint8), format="rgb24")))
        container.mux(stream.encode(None))
    stored = file.getvalue()
    rows = (of_film(Media("video", stored), resize="pad")[:, 12] == 255).all(axis=1).sum()
    assert rows == 18
    assert (of_film(Media("video", stored)) == 255).all()


@given(
    frame=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    how=st.sampled_from(["squash", "pad", "crop"]),
)
def test_any_frame_comes_to_the_size(frame: tuple[int, int], size: tuple[int, int], how: Any) -> None:
    found = fit_array(np.full((*frame, 3), 255, np.uint8), Fit(size, how))
    assert found.shape == (*size, 3)
    assert (found == 255).all() if how != "pad" else (found == 255).any()


def test_of_a_very_long_frame_the_middle_is_cut_before_it_is_scaled() -> None:
    frame = np.zeros((2, 4000, 3), np.uint8)
    frame[:, 1990:2010] = 255
    assert Fit((200, 200), "crop").scaled_px((2, 4000))[1] == 400_000
    assert (fit_array(frame, Fit((200, 200), "crop")) == 255).all()


def test_margins_need_a_colour() -> None:
    class Bare:
        patch_px, size_px = (8, 8), (16, 24)

    assert VideoProcessor(Bare(), resize="crop").fit.how == "crop"
    with pytest.raises(ConfigError, match="pad takes the encoder's mean colour, and Bare states none"):
        VideoProcessor(Bare(), resize="pad")


@pytest.mark.parametrize("options", [{"num_frames": 3}, {"num_frames": 3, "time_marks": False}])
def test_the_size_of_a_film_and_of_its_frames_are_told(options: dict[str, Any]) -> None:
    film = np.zeros((20, 40, 56, 3), np.uint8)
    file = encoded([*film], [125 * i for i in range(20)])
    for media in (Media("video", film, rate_hz=8.0), Media("video", file)):
        processor = VideoProcessor(COLOURS, **options)
        told = processor.described(media, processor.plan(media))
        # the last frame of the file has no length
        assert re.fullmatch(r"height x width in px: 40 x 56, 2\.[45]\d* s; fed as 3 frames of 32 x 24", told)
