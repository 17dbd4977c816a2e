"""What a person is told of a picture: its own size and the one that is fed."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kosmos import Media, SampleError
from kosmos_vision.images import ImageInput, ImageProcessor

FIXED = ImageInput((16, 16), (64, 64))
VARIABLE = ImageInput((16, 16), None)


def told(encoder_input: ImageInput, source: Any, **options: Any) -> str:
    processor = ImageProcessor(encoder_input, **options)
    media = Media("image", source)
    return processor.described(media, processor.plan(media))


def array(height: int, width: int) -> np.ndarray:
    return np.zeros((height, width, 3), np.uint8)


def saved(pictures: list[Image.Image], format: str, **options: Any) -> bytes:
    with io.BytesIO() as file:
        more = {"save_all": True, "append_images": pictures[1:]} if len(pictures) > 1 else {}
        pictures[0].save(file, format, **more, **options)
        return file.getvalue()


def test_the_size_of_a_picture_and_the_one_that_is_fed_are_told() -> None:
    assert told(VARIABLE, array(3508, 2480)) == "height x width in px: 3508 x 2480, fed as 304 x 208"
    assert told(FIXED, array(30, 40)) == "height x width in px: 30 x 40, fed as 64 x 64, resize squash"
    assert told(FIXED, array(130, 260), max_tiles=6, resize="pad") == (
        "height x width in px: 130 x 260, fed as 64 x 64 and as 2 x 3 tiles of that, resize pad"
    )


def test_the_size_of_a_turned_picture_is_the_upright_one() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = saved([Image.new("RGB", (20, 10))], "JPEG", exif=exif)
    assert told(FIXED, turned).startswith("height x width in px: 20 x 10, ")


def test_a_picture_that_cannot_be_read_is_told_by_its_reason() -> None:
    with pytest.raises(SampleError, match="not a picture that can be read"):
        told(FIXED, b"no picture")


@pytest.mark.parametrize("format", ["TIFF", "GIF", "PNG", "WEBP"])
def test_of_several_pages_or_frames_it_is_told_that_the_first_is_taken(format: str) -> None:
    pages = [Image.new("RGB", (40, 30), colour) for colour in ("red", "green", "blue")]
    told_of = told(VARIABLE, saved(pages, format))
    assert told_of == "height x width in px: 30 x 40, the first of 3 pages or frames, fed as 32 x 48"
    assert told(VARIABLE, saved(pages[:1], format)) == "height x width in px: 30 x 40, fed as 32 x 48"


def test_what_else_the_file_of_a_phone_holds_is_no_page() -> None:
    pictures = [Image.new("RGB", (40, 30), colour) for colour in ("red", "green")]
    assert told(VARIABLE, saved(pictures, "MPO")) == "height x width in px: 30 x 40, fed as 32 x 48"


def test_pages_that_are_broken_behind_the_first_are_no_matter() -> None:
    pages = saved([Image.new("RGB", (40, 30), colour) for colour in ("red", "green")], "TIFF")
    assert told(VARIABLE, pages[: len(pages) // 2]) == "height x width in px: 30 x 40, fed as 32 x 48"


def test_pages_without_end_are_not_counted_to_their_end() -> None:
    content = bytearray(saved([Image.new("RGB", (40, 30))], "TIFF"))
    begin = int.from_bytes(content[4:8], "little")
    entries = content[begin : begin + 2 + 12 * int.from_bytes(content[begin : begin + 2], "little")]
    content[begin + len(entries) : begin + len(entries) + 4] = len(content).to_bytes(4, "little")
    for _ in range(1200):
        content += entries + (len(content) + len(entries) + 4).to_bytes(4, "little")
    assert ", the first of over 1,000 pages or frames, " in told(VARIABLE, bytes(content))
