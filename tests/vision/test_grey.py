"""Grey of more than 8 bits, with a sign and of floats: which values are black and white, and what is said without."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kosmos import ConfigError, Media, SampleError, load_plugins, make_run, open_sources
from kosmos.cli import main
from kosmos.data.doubtful_media import doubted_media
from kosmos.data.plan import Route
from kosmos_vision.images import ImageInput, ImageProcessor

SIDE = 64
FIXED = ImageInput((16, 16), (SIDE, SIDE))


def png(values: np.ndarray) -> bytes:
    with io.BytesIO() as file:
        Image.fromarray(values).save(file, "PNG")
        return file.getvalue()


def tiff(values: np.ndarray, *, white_is_zero: bool = False) -> bytes:
    """One channel, uncompressed, with the sample format of the array's type."""
    format = {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    height, width = values.shape
    data, bits = values.astype(values.dtype.newbyteorder("<")).tobytes(), 8 * values.dtype.itemsize
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: 1 - white_is_zero, 273: 8, 277: 1, 278: height}
    tags |= {279: len(data), 339: format}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(tags)) + entries + bytes(4)


def grey(source: Any, **options: Any) -> np.ndarray:
    """[SIDE, SIDE] as it is fed."""
    processor, media = ImageProcessor(FIXED, **options), Media("image", source)
    cells = processor.decode(media, processor.plan(media))
    rows = SIDE // 16
    planes = cells.reshape(rows, rows, 3, 16, 16).transpose(2, 0, 3, 1, 4).reshape(3, SIDE, SIDE)
    assert (planes == planes[0]).all()
    return planes[0].astype(int)


def ramp(low: float, high: float, type: Any) -> np.ndarray:
    return np.linspace(low, high, SIDE * SIDE).astype(type).reshape(SIDE, SIDE)


def expected(values: np.ndarray, low: float, high: float) -> np.ndarray:
    share = (values.astype(np.float64) - low) / (high - low)
    return np.floor(np.clip(share, 0, 1) * 255 + 0.5).astype(int)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (ramp(0, 4095, np.uint16), 0, 4095),
        (ramp(0, 65535, np.uint16), 100, 40_000),
        (ramp(-1024, 3000, np.int16), -160, 240),  # HU of CT
        (ramp(-128, 127, np.int8), -128, 127),
        (ramp(-1e6, 1e6, np.int32), -5e5, 1e6),
        (ramp(0, 4e9, np.uint32), 0, 4e9),
        (ramp(-0.5, 1.5, np.float32), 0, 1),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
)
def test_a_range_says_which_values_are_black_and_white(values: np.ndarray, low: float, high: float) -> None:
    wanted = expected(values, low, high)
    for source in (tiff(values), values, values[..., None]):
        assert np.array_equal(grey(source, gray_range=(low, high)), wanted)


def test_a_range_holds_for_png_and_where_white_is_zero() -> None:
    values = ramp(0, 900, np.uint16)
    wanted = expected(values, 0, 816)
    assert np.array_equal(grey(png(values), gray_range=(0, 816)), wanted)
    assert np.array_equal(grey(tiff(values, white_is_zero=True), gray_range=(0, 816)), 255 - wanted)


def test_the_full_range_is_what_is_taken_without_one() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    plain, given = (grey(png(every[y : y + 64, x : x + 64]), **options)
                    for options in ({}, {"gray_range": (0, 65535)})
                    for y, x in ((64, 128),))  # fmt: skip
    assert np.array_equal(plain, given)


def test_pictures_of_8_bits_and_colours_know_no_range() -> None:
    values = ramp(0, 255, np.uint8)
    for source in (values, png(values), png(np.stack([values] * 3, -1))):
        assert np.array_equal(grey(source, gray_range=(0, 10)), grey(source))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (tiff(ramp(-128, 127, np.int8)), "8 bits with a sign have no agreed range; .*processor.gray_range"),
        (tiff(ramp(-5, 5, np.int16)), "grey values from -5 to 5; need .*gray_range"),
        (tiff(ramp(0, 1, np.float32)), "floats, have no agreed range; .*gray_range"),
        (tiff(ramp(0, 1, np.int32)), "32 bits have no agreed range; .*gray_range"),
        (ramp(0, 1, np.uint16), "picture is an array uint16 .*gray_range"),
    ],
)
def test_what_has_no_agreed_range_is_refused_without_one(source: Any, said: str) -> None:
    with pytest.raises(SampleError, match=said):
        grey(source)


def test_values_that_are_no_numbers_are_refused_and_infinite_ones_cut_off() -> None:
    values = ramp(0, 1, np.float32)
    values[0, 0], values[0, 1] = np.inf, -np.inf
    assert grey(tiff(values), gray_range=(0, 1))[0, :2].tolist() == [255, 0]
    values[0, 0] = np.nan
    with pytest.raises(SampleError, match="NaN"):
        grey(tiff(values), gray_range=(0, 1))


@pytest.mark.parametrize("given", [(1, 1), (2, 1), (0, float("inf")), (float("nan"), 1)])
def test_what_is_no_range_is_refused(given: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match=r"gray_range \[.*need \[low, high\]"):
        ImageProcessor(FIXED, gray_range=given)


def test_16_bits_of_which_the_lowest_alone_are_in_use_are_doubted() -> None:
    plain = ImageProcessor(FIXED)
    (said,) = {plain.doubt(Media("image", file(ramp(0, 816, np.uint16)))) for file in (png, tiff)}
    assert said == (
        "16 bits whose largest value is 816 of 65,535 are nearly black (3 of 255); set "
        "modalities.image.processor.gray_range, such as [0, 1023]"
    )
    turned = plain.doubt(Media("image", tiff(ramp(0, 816, np.uint16), white_is_zero=True)))
    assert turned == said.replace("black", "white")
    assert plain.doubt(Media("image", tiff(ramp(-5, 5, np.int16)))) == ""  # which is refused
    others = [png(ramp(0, 60_000, np.uint16)), png(ramp(0, 10, np.uint8)), tiff(ramp(0, 1, np.float32))]
    assert {plain.doubt(Media("image", source)) for source in [*others, ramp(0, 10, np.uint8)]} == {""}
    assert ImageProcessor(FIXED, gray_range=(0, 816)).doubt(Media("image", png(ramp(0, 816, np.uint16)))) == ""


def png_with_alpha(values: np.ndarray) -> bytes:
    """Grey and alpha of 16 bits each, which Pillow cannot write."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    height, width = values.shape
    rows = np.stack([values, np.full_like(values, 65535)], -1).astype(">u2").reshape(height, -1).view(np.uint8)
    pixels = zlib.compress(np.pad(rows, ((0, 0), (1, 0))).tobytes())  # each row is unfiltered
    header = struct.pack(">IIBBBBB", width, height, 16, 4, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_16_bits_with_alpha_are_doubted_where_they_are_dark_and_know_no_range() -> None:
    low, full = png_with_alpha(ramp(0, 816, np.uint16)), png_with_alpha(ramp(0, 65535, np.uint16))
    with pytest.raises(SampleError, match=r"a PNG of grey and alpha of 16 bits .*gray_range.*; store it without alpha"):
        grey(low, gray_range=(0, 816))
    assert ImageProcessor(FIXED).doubt(Media("image", low)) == (
        "16 bits of grey, beside alpha, whose largest value is below 1,024 of 65,535 are nearly black (3 of 255); "
        "store the picture without alpha and set modalities.image.processor.gray_range"
    )
    assert ImageProcessor(FIXED).doubt(Media("image", full)) == ""
    assert np.array_equal(grey(full), ramp(0, 65535, np.uint16) >> 8)
    with io.BytesIO() as file:  # of 8 bits, which knows no range
        Image.fromarray(np.full((SIDE, SIDE, 2), 255, np.uint8), "LA").save(file, "PNG")
        assert (grey(file.getvalue(), gray_range=(0, 816)) == 255).all()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    for number in range(4):
        tmp_path.joinpath(f"{number}.png").write_bytes(png(ramp(0, 800 + number, np.uint16)))
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"image": f"{number}.png", "text": "a lung"}) + "\n" for number in range(4)))
    return rows


def test_what_is_doubted_is_told_of_the_data_and_of_each_picture_shown(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["data", "--modalities", "image", "--data", str(rows), "data.held_out=0"]
    assert main([*given, "--json", "--documents", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    (warning,) = (line for line in told["warnings"] if "gray_range" in line)
    assert warning.startswith("rows: 4 of 4 image items looked at are hardly read as meant, such as ")
    (shown,) = (part["shown"] for part in told["shown"][0]["stretches"] if part["kind"] == "media")
    assert "resize squash; 16 bits whose largest value is 80" in shown
    assert main([*given, "--json", "--check", "modalities.image.processor.gray_range=[0, 816]"]) == 0
    assert "nearly black" not in capsys.readouterr().out


def test_a_few_that_are_doubted_among_many_are_not_told(rows: Path) -> None:
    for number in range(3):
        rows.with_name(f"{number}.png").write_bytes(png(ramp(0, 60_000, np.uint16)))
    run = make_run({"modalities": ["image"], "data": {"sources": [str(rows)], "held_out": 0.0}})
    sources = open_sources(run, load_plugins(), "train")
    routes = {"image": Route(ImageProcessor(FIXED), "image", len, frozenset())}
    assert list(doubted_media(routes, sources)) == []
    rows.with_name("2.png").write_bytes(png(ramp(0, 600, np.uint16)))
    (line,) = doubted_media(routes, sources)
    assert line.startswith("rows: 2 of 4 ")
