"""Small pictures as pixels in few shades: the codec without weights."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from kosmos import ConfigError, Media, SampleError
from kosmos_vision.codecs.pixels import PixelCodec


def shown(codec: PixelCodec, source: Any) -> np.ndarray:
    """What a picture becomes, as pixels."""
    made = codec.decode(codec.encode(Media("image", source)))
    assert made.suffix == ".png"
    with Image.open(io.BytesIO(made.content)) as picture:
        return np.asarray(picture)


@settings(max_examples=40)
@given(
    st.sampled_from([(1, 2, False), (1, 4, False), (1, 256, False), (2, 4, False), (3, 2, False), (1, 3, True)]),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_what_is_decoded_comes_to_the_same_codes(kind: tuple[int, int, bool], blocks: int, random: Any) -> None:
    block, levels, colours = kind
    codec = PixelCodec(side=blocks * block, block=block, levels=levels, colours=colours)
    codes = np.array([random.randrange(codec.size) for _ in range(blocks * blocks)], np.int64)
    again = codec.encode(Media("image", codec.decode(codes).content))
    assert again.tolist() == codes.tolist() and codec.length == len(codes)


@pytest.mark.parametrize(
    ("options", "size", "tokens"),
    [
        ({}, 4, 256),
        ({"block": 2}, 256, 64),
        ({"side": 8, "levels": 2}, 2, 64),
        ({"levels": 2, "colours": True}, 8, 256),
        ({"levels": 16, "colours": True}, 4096, 256),
    ],
)
def test_codes_are_as_many_as_a_block_may_be(options: dict[str, Any], size: int, tokens: int) -> None:
    codec = PixelCodec(**options)
    codes = codec.encode(Media("image", np.full((30, 20, 3), 255, np.uint8)))
    assert (codec.size, codec.length) == (size, tokens)
    assert codes.tolist() == [size - 1] * tokens  # white is the last


def test_shades_are_the_nearest_in_even_steps() -> None:
    greys = np.array([[0, 42, 43, 127], [128, 212, 213, 255]] * 2, np.uint8)
    assert PixelCodec(side=4).encode(Media("image", greys)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3] * 2
    assert shown(PixelCodec(side=4), greys)[:2].tolist() == [[0, 0, 85, 85], [170, 170, 255, 255]]


def test_colours_are_kept_apart() -> None:
    picture = np.zeros((2, 2, 3), np.uint8)
    picture[0, 0], picture[0, 1], picture[1, 0] = (255, 0, 0), (0, 255, 0), (0, 0, 200)
    codec = PixelCodec(side=2, levels=2, colours=True)
    assert codec.encode(Media("image", picture)).tolist() == [1, 2, 4, 0]
    assert shown(codec, picture).tolist() == [[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [0, 0, 0]]]


@pytest.mark.parametrize(
    ("fit", "row"), [("crop", [255] * 4), ("stretch", [0, 255, 255, 0]), ("pad", [0, 255, 255, 0])]
)
def test_what_is_no_square_is_cut_stretched_or_has_margins(fit: Any, row: list[int]) -> None:
    picture = np.zeros((16, 32), np.uint8)
    picture[:, 8:24] = 255
    pixels = shown(PixelCodec(side=4, levels=2, fit=fit), picture)
    assert pixels[1].tolist() == row
    assert pixels[0].tolist() == ([255] * 4 if fit == "pad" else row)


def test_pictures_are_upright_and_transparency_is_white() -> None:
    turned = Image.fromarray(np.array([[0, 255], [0, 255]], np.uint8).repeat(8, 0).repeat(8, 1))
    exif = Image.Exif()
    exif[274] = 6  # shown turned by a quarter, clockwise: what was left is above
    with io.BytesIO() as file:
        turned.save(file, "PNG", exif=exif)
        assert shown(PixelCodec(side=2, levels=2), file.getvalue()).tolist() == [[0, 0], [255, 255]]
    assert shown(PixelCodec(side=2, levels=2), np.zeros((2, 2, 4), np.uint8)).tolist() == [[255, 255]] * 2
    deep = Image.fromarray(np.full((2, 2), 65535, np.uint16))
    with io.BytesIO() as file:
        deep.save(file, "PNG")
        assert shown(PixelCodec(side=2), file.getvalue()).tolist() == [[255, 255]] * 2


@pytest.mark.parametrize("count", [0, 63, 65])
def test_another_number_of_codes_is_no_picture(count: int) -> None:
    with pytest.raises(SampleError, match=rf"{count} codes, a picture of 8 x 8 pixels has 64"):
        PixelCodec(side=8).decode(np.zeros(count, np.int64))


@pytest.mark.parametrize("code", [-1, 4])
def test_a_code_of_another_codec_is_no_picture(code: int) -> None:
    with pytest.raises(SampleError, match="there are 0 to 3"):
        PixelCodec(side=2).decode(np.array([0, code, 1, 2]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"side": 9, "block": 2}, "need a side that is a multiple of block"),
        ({"levels": 1}, "levels 1: need 2 to 256"),
        ({"levels": 300}, "levels 300: need 2 to 256, which pictures of 8 bits have"),
        ({"block": 4}, "4 to the power of 16, over 4,096"),
        ({"levels": 17, "colours": True}, "17 to the power of 3, over 4,096"),
        ({"levels": 256, "block": 1000, "side": 1000}, "over 4,096"),
        ({"side": 65}, "4,225 tokens a picture, over 4,096"),
        ({"fit": "cover"}, "fit 'cover': expected one of crop, stretch, pad"),
        ({"max_bytes": 0}, "max_bytes 0: need at least 1"),
        ({"max_pixels": (1 << 30) + 1}, "need at least 1, and 1073741824 pixels at most"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        PixelCodec(**options)


def test_limits_and_clips_are_checked_before_pixels_are() -> None:
    picture = np.zeros((20, 20), np.uint8)
    with pytest.raises(SampleError, match=r"over max_pixels 399; set modalities\.image\.codec\.max_pixels higher, or"):
        PixelCodec(max_pixels=399).encode(Media("image", picture))
    with pytest.raises(SampleError, match="over max_bytes 3"):
        PixelCodec(max_bytes=3).encode(Media("image", b"1234"))
    with pytest.raises(SampleError, match="a picture has no time"):
        PixelCodec().encode(Media("image", picture, clip=(0.0, 1.0)))


@pytest.mark.parametrize("before", [1000, None])
def test_its_highest_limit_is_not_that_of_pillow(before: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", before)
    assert PixelCodec(max_pixels=1 << 30).size == 4


def test_it_is_pickled_for_data_workers() -> None:
    codec = PixelCodec(side=4)
    media = Media("image", np.arange(64, dtype=np.uint8).reshape(8, 8))
    assert pickle.loads(pickle.dumps(codec)).encode(media).tolist() == codec.encode(media).tolist()


def test_broken_pictures_are_bad_samples(shared_data: Callable[[str], Path]) -> None:
    files = sorted(file for file in (shared_data("corner") / "image").iterdir() if file.is_file())
    codec, refused = PixelCodec(side=4), 0
    for file in files:
        try:
            assert len(codec.encode(Media("image", file))) == 16
        except SampleError:
            refused += 1
    assert 0 < refused < len(files)
