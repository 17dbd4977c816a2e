"""TIFF files that are cut short or damaged: what is said of them, and what is not printed."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kosmos import Media, SampleError
from kosmos_vision.images import ImageInput, ImageProcessor

FIXED = ImageInput((16, 16), (64, 64))


def tiff(compression: str) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    with io.BytesIO() as file:
        Image.fromarray(noise).save(file, "TIFF", compression=compression)
        return file.getvalue()


def refused(source: bytes | Path) -> str:
    processor, media = ImageProcessor(FIXED), Media("image", source)
    with pytest.raises(SampleError) as caught:
        processor.decode(media, processor.plan(media))
    return str(caught.value)


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_one_that_is_cut_short_says_so(compression: str, tmp_path: Path) -> None:
    data = tiff(compression)
    directory = int.from_bytes(data[4:8], "little")
    short = data[: len(data) // 2]
    tmp_path.joinpath("short.tif").write_bytes(short)
    for source in (short, tmp_path / "short.tif"):
        assert refused(source) == (
            f"broken picture: TIFF file is cut short: it has {len(short):,} bytes, and its directory should be at byte "
            f"{directory:,}"
        )


def test_a_large_one_that_is_cut_short_says_so_in_either_order_of_bytes() -> None:
    for head in (b"II" + struct.pack("<HHHQ", 43, 8, 0, 10**10), b"MM" + struct.pack(">HHHQ", 43, 8, 0, 10**10)):
        assert refused(head + bytes(100)).endswith("has 116 bytes, and its directory should be at byte 10,000,000,000")


def test_what_only_begins_like_one_is_no_picture() -> None:
    for source in (b"II", b"II*", b"IIsomething else" * 9, b"II*\0\x08\0\0\0" + bytes(90)):
        assert "cut short" not in refused(source)


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate"])
def test_one_that_is_damaged_is_told_by_its_error_alone(compression: str, capfd: pytest.CaptureFixture[str]) -> None:
    data = tiff(compression)
    half = len(data) // 2
    assert refused(data[:half] + b"\xff\x00" * 200 + data[half + 400 :]) == (
        "broken picture: its pixels are damaged or cut short (decoder error -2)"
    )
    assert capfd.readouterr() == ("", "")  # libtiff would print lines, in which no file has its name
