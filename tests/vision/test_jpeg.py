"""Plain JPEGs are decoded from their bytes at once: the same pixels, and the same words where one is broken."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from kosmos import SampleError, cut_blocks
from kosmos_vision.cutting import colour_planes, cut_planes
from kosmos_vision.jpeg import MOST_SCANS, find_frame
from kosmos_vision.pictures import Limits, load_rgb, read_header

LIMITS = Limits(1 << 24, 1 << 24)
NOT_PLAIN = b"\xff\xe1\x00\x10http://nowhere"
"""A stretch that changes no pixel, and may have turned the picture as far as a look at the frame can tell."""

sides = st.integers(1, 90)
pictures = st.builds(
    lambda size, mode, seed, options: encoded(size, mode, seed, **options),
    st.tuples(sides, sides),
    st.sampled_from(["RGB", "RGB", "RGB", "L", "CMYK"]),
    st.integers(0, 9),
    st.fixed_dictionaries(
        {
            "quality": st.sampled_from([5, 75, 100]),
            "subsampling": st.integers(0, 2),
            "progressive": st.booleans(),
            "restart_marker_rows": st.integers(0, 2),
            "comment": st.sampled_from([b"", b"said" * 700]),
            "icc_profile": st.sampled_from([None, b"\0" * 3000]),
        }
    ),
)


def encoded(size: tuple[int, int], mode: str, seed: int, **options: object) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize(size).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def left_to_pillow(content: bytes) -> bytes:
    """The same picture, of which Pillow reads the header."""
    changed = content[:2] + NOT_PLAIN + content[2:]
    assert find_frame(io.BytesIO(changed)) is None
    return changed


def outcome(content: bytes, wanted: tuple[int, int]) -> tuple[object, ...]:
    try:
        found = load_rgb(content, LIMITS, None, wanted)
    except SampleError as error:
        return ("refused", str(error))
    return found.mode, found.size, found.tobytes()


@settings(deadline=None)
@given(content=pictures, wanted=st.tuples(sides, sides))
def test_pixels_are_those_that_pillow_reads(content: bytes, wanted: tuple[int, int]) -> None:
    with Image.open(io.BytesIO(content)) as expected:
        size = expected.size
        expected.draft(None, (2 * wanted[1], 2 * wanted[0]))
        rgb = expected.convert("RGB")
    assert outcome(content, wanted) == ("RGB", rgb.size, rgb.tobytes())
    assert read_header(content, LIMITS) == (size[1], size[0], 1)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"comment": b"said"}, {"subsampling": 0}])
def test_a_plain_jpeg_is_known_by_its_frame(options: dict[str, object]) -> None:
    file = io.BytesIO(encoded((70, 40), "RGB", 0, **options))
    assert find_frame(file) == (40, 70)
    assert file.tell() == 0


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_a_jpeg_of_other_colours_is_left_to_pillow(mode: str) -> None:
    assert find_frame(io.BytesIO(encoded((70, 40), mode, 0))) is None


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_jpeg_that_says_how_it_is_turned_is_turned(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded((70, 40), "RGB", 0, exif=exif)
    with Image.open(io.BytesIO(content)) as picture:
        upright = ImageOps.exif_transpose(picture)
    assert outcome(content, (40, 40)) == ("RGB", upright.size, upright.tobytes())


def test_a_turn_that_is_told_behind_the_frame_is_heard() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    content, told = encoded((70, 40), "RGB", 0), b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0")
    scan = content.index(b"\xff\xda")
    turned = content[:scan] + b"\xff\xe1" + (len(told) + 2).to_bytes(2) + told + content[scan:]
    assert read_header(turned, LIMITS) == (70, 40, 6)
    assert load_rgb(turned, LIMITS, None, (70, 40)).size == (40, 70)


@settings(max_examples=300, deadline=None)
@given(content=pictures, data=st.data())
def test_a_jpeg_that_is_cut_or_changed_comes_to_what_pillow_makes_of_it(content: bytes, data: st.DataObject) -> None:
    broken = bytearray(content[: data.draw(st.integers(3, len(content)))])
    for place in data.draw(st.lists(st.integers(3, len(broken)), max_size=3)):
        broken[place : place + 1] = bytes([data.draw(st.integers(0, 255))])
    broken = bytes(broken)
    assert outcome(broken, (20, 20)) == outcome(left_to_pillow(broken), (20, 20))


@pytest.mark.parametrize("folder", ["images/coco", "images/photos", "images/flowers", "corner/image"])
def test_real_jpegs_are_the_same_by_both_ways(folder: str, shared_data: Callable[[str], Path]) -> None:
    contents = [file.read_bytes() for file in sorted(shared_data(folder).rglob("*.jp*g"))[:40]]
    jpegs = [content for content in contents if content.startswith(b"\xff\xd8\xff")]
    assert jpegs
    for content in jpegs:
        assert outcome(content, (100, 100)) == outcome(left_to_pillow(content), (100, 100))


def test_the_limits_hold_before_anything_is_decoded() -> None:
    content = encoded((90, 80), "RGB", 0)
    for read in (lambda limits: load_rgb(content, limits, None, (9, 9)), lambda limits: read_header(content, limits)):
        with pytest.raises(SampleError, match="90 x 80 pixels is over max_pixels 7199"):
            read(Limits(7199, 1 << 20))
        with pytest.raises(SampleError, match="is over max_bytes 20"):
            read(Limits(7200, 20))


def with_scans(content: bytes, more: int, scan: bytes) -> bytes:
    return content[:-2] + scan * more + content[-2:]


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_picture_of_endless_scans_is_refused_and_one_of_many_is_read(mode: str) -> None:
    content = encoded((70, 40), mode, 0, progressive=True)
    last = content[content.rindex(b"\xff\xda") : -2]
    have = content.count(b"\xff\xda")
    many = with_scans(content, MOST_SCANS - have, last)
    assert load_rgb(many, LIMITS, None, (40, 70)).size == (70, 40)
    with pytest.raises(SampleError, match="picture has over 100 scans"):
        load_rgb(with_scans(many, 1, last), LIMITS, None, (40, 70))
    behind = content + last * MOST_SCANS  # a film, say, of which a decoder sees nothing
    within = content[:2] + b"\xff\xfe\x00\xcc" + b"\xff\xda" * MOST_SCANS + b"\0\0" + content[2:]
    for whole in (behind, within):
        assert load_rgb(whole, LIMITS, None, (40, 70)).tobytes() == load_rgb(content, LIMITS, None, (40, 70)).tobytes()


def test_endless_scans_of_one_colour_each_are_refused_without_progress_too() -> None:
    content = encoded((70, 40), "RGB", 0)
    header = content[: content.index(b"\xff\xda")]
    scans = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\x00" * (MOST_SCANS + 1)
    with pytest.raises(SampleError, match="picture has over 100 scans"):
        load_rgb(header + scans + b"\xff\xd9", LIMITS, None, (40, 70))


@given(
    patch=st.tuples(st.integers(1, 5), st.sampled_from([1, 3, 14, 16, 32, 48])),
    cells=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_cells_are_blocks_of_the_picture(patch: tuple[int, int], cells: tuple[int, int]) -> None:
    height, width = patch[0] * cells[0], patch[1] * cells[1]
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    found = cut_planes(colour_planes(Image.fromarray(pixels)), patch)
    assert found.dtype == np.uint8
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, cut_blocks(pixels[None], (1, *patch))[:, :, 0])
