"""The picture processor: plans from headers, decodes what was planned, refuses what it cannot trust."""

from __future__ import annotations

import io
import json
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from kosmos import ConfigError, Media, SampleError
from kosmos_vision.images import ImageInput, ImageProcessor
from kosmos_vision.pictures import Limits, load_rgb, read_header

FIXED = ImageInput((16, 16), (64, 64))
VARIABLE = ImageInput((16, 16), None)
PARTLY = {  # what becomes of the corner files that other programs decode in part
    "broken_data_stream.png": "refused",
    "truncated_image.png": "refused",
    "truncated_jpeg.jpg": "refused",
    "apng_zero_frames.png": "refused",
    "decompression_bomb_extents.gif": "decoded",
}


def encoded(picture: Image.Image, format: str = "PNG", **options: object) -> bytes:
    with io.BytesIO() as file:
        picture.save(file, format, **options)
        return file.getvalue()


def whole(processor: ImageProcessor, source: bytes | Path | np.ndarray) -> np.ndarray:
    """Plan and decode, then put the cells together again: uint8 [H, W, 3]."""
    media = Media("image", source)
    plan = processor.plan(media)
    cells = processor.decode(media, plan)
    _, h, w = plan.grids[0]
    assert cells.shape == (plan.cells, *processor.cell_shape)
    assert cells.dtype == processor.cell_dtype
    return cells.reshape(h, w, *cells.shape[1:]).transpose(0, 3, 1, 4, 2).reshape(h * 16, w * 16, 3)


def corner_rows(shared_data: Callable[[str], Path]) -> list[tuple[Path, str]]:
    root = shared_data("corner")
    rows = [json.loads(line) for line in (root / "manifest.jsonl").read_text().splitlines()]
    return [(root / row["image"], row["decodes"]) for row in rows if "image" in row]


@pytest.mark.parametrize("encoder_input", [FIXED, VARIABLE], ids=["fixed", "variable"])
def test_every_corner_file_decodes_or_is_refused_as_its_manifest_says(
    encoder_input: ImageInput, shared_data: Callable[[str], Path]
) -> None:
    processor = ImageProcessor(encoder_input)
    wrong = []
    for path, decodes in corner_rows(shared_data):
        expected = {"yes": "decoded", "no": "refused"}.get(decodes) or PARTLY[path.name]
        try:
            whole(processor, path)
            found = "decoded"
        except SampleError as error:
            found = "refused" if "\n" not in str(error) else "refused in several lines"
        wrong += [(path.name, expected, found)] if found != expected else []
    assert wrong == []


def test_bytes_and_path_of_a_file_give_the_same_cells(shared_data: Callable[[str], Path]) -> None:
    processor = ImageProcessor(VARIABLE)
    for path, decodes in corner_rows(shared_data):
        if decodes == "yes":
            assert np.array_equal(whole(processor, path), whole(processor, path.read_bytes()))


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 60), st.sampled_from([8, 16, 32]))
@settings(max_examples=60, deadline=None)
def test_planned_cells_are_produced_whatever_the_size(height: int, width: int, max_cells: int, patch: int) -> None:
    processor = ImageProcessor(ImageInput((patch, patch), None), max_cells=max_cells)
    media = Media("image", np.zeros((height, width, 3), np.uint8))
    plan = processor.plan(media)
    assert plan == processor.plan(media)
    assert 1 <= plan.cells <= max_cells
    assert plan.layout[0] == "<image>"
    assert plan.layout[2] == "</image>"
    assert processor.decode(media, plan).shape == (plan.cells, 3, patch, patch)


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from(["squash", "crop", "pad"]))
@settings(max_examples=30, deadline=None)
def test_every_way_to_resize_gives_the_fixed_size(height: int, width: int, resize: str) -> None:
    processor = ImageProcessor(FIXED, resize=resize)  # type: ignore[arg-type]
    assert whole(processor, np.zeros((height, width), np.uint8)).shape == (64, 64, 3)


def test_pad_keeps_everything_and_crop_keeps_the_centre() -> None:
    pixels = np.zeros((64, 128, 3), np.uint8)
    pixels[:, 32:96] = 255
    padded = whole(ImageProcessor(FIXED, resize="pad"), pixels)
    assert (padded[:14] == 128).all()
    assert padded[32, 1].max() < 10
    assert whole(ImageProcessor(FIXED, resize="crop"), pixels).min() > 250


def test_cells_lie_in_reading_order() -> None:
    pixels = np.arange(16, dtype=np.uint8).reshape(4, 4).repeat(16, 0).repeat(16, 1)
    media = Media("image", pixels)
    processor = ImageProcessor(FIXED)
    cells = processor.decode(media, processor.plan(media))
    assert cells[:, 0, 0, 0].tolist() == list(range(16))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_exif_orientations_are_turned_upright(orientation: int, format: str) -> None:
    upright = Image.new("RGB", (96, 64), "black")
    upright.paste((255, 255, 255), (0, 0, 32, 32))  # top left
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # the turn that undoes the one of this orientation
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(back[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = whole(ImageProcessor(VARIABLE), encoded(stored, format, exif=exif))
    assert found.shape == (64, 96, 3)
    assert found[8, 8].min() > 230
    assert max(found[8, 88].max(), found[56, 8].max(), found[56, 88].max()) < 25


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 64 * 64).astype(np.uint16).reshape(64, 64)
    for format in ("PNG", "TIFF"):
        found = whole(ImageProcessor(FIXED), encoded(Image.fromarray(ramp), format))
        assert np.abs(found[..., 0].astype(int) - ramp / 257).max() <= 1
        assert np.array_equal(found[..., 0], found[..., 2])


def twelve_bits(values: NDArray[np.uint16]) -> bytes:
    """A TIFF of 12 bits a pixel, two of which are in three bytes; Pillow writes none."""
    height, width = values.shape
    packed = b"".join(int(a << 12 | b).to_bytes(3, "big") for a, b in values.astype(int).reshape(-1, 2))
    tags = {256: width, 257: height, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: len(packed)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<I", 8 + len(packed)) + packed + struct.pack("<H", len(tags)) + entries + bytes(4)


def test_grey_of_many_bits_is_read_by_what_a_tiff_states() -> None:
    ramp = np.linspace(0, 4095, 64 * 64).astype(np.uint16).reshape(64, 64)
    found = whole(ImageProcessor(FIXED), twelve_bits(ramp))
    assert np.abs(found[..., 0].astype(int) - ramp / 16.06).max() <= 1
    inverted = encoded(Image.fromarray(ramp * 16), "TIFF", tiffinfo={262: 0})  # white is zero
    assert np.abs(whole(ImageProcessor(FIXED), inverted)[..., 0].astype(int) - (255 - ramp / 16.06)).max() <= 2


def test_sixteen_bit_rgb_tiff_is_scaled(shared_data: Callable[[str], Path]) -> None:
    found = whole(ImageProcessor(VARIABLE), shared_data("corner/image/rgb16.tiff"))
    assert len(np.unique(found)) > 20


def test_adobe_cmyk_has_red_top_left_and_black_bottom_right(shared_data: Callable[[str], Path]) -> None:
    found = whole(ImageProcessor(VARIABLE), shared_data("corner/image/cmyk.jpg"))
    red, green, blue = found[2, 2].astype(int)
    assert red > green + 100
    assert red > blue + 100
    assert found[-3, -3].max() < 60


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_becomes_white(mode: str) -> None:
    picture = Image.new("RGBA", (64, 64), (0, 0, 0, 0))
    picture.paste((255, 0, 0, 255), (0, 0, 64, 32))
    data = encoded(picture.convert(mode), "PNG")
    found = whole(ImageProcessor(FIXED), data)
    assert (found[-8:] == 255).all()
    assert found[8, 8].tolist() != [255, 255, 255]


def test_a_picture_whose_alpha_hides_nothing_keeps_its_colours_and_is_laid_on_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    alpha = np.full((64, 64, 1), 255, np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.concatenate([colours, alpha], 2)).save(file, "PNG")
    laid, on_white = [], Image.alpha_composite
    monkeypatch.setattr(Image, "alpha_composite", lambda *given: laid.append(given) or on_white(*given))
    found = load_rgb(file.getvalue(), Limits(10**6, 10**6), 1, (64, 64))
    assert (np.asarray(found) == colours).all()
    assert not laid


def test_grey_palette_and_one_bit_pictures_become_rgb() -> None:
    for mode in ("1", "L", "P", "CMYK", "YCbCr"):
        picture = Image.new("RGB", (64, 64), "white").convert(mode)
        found = whole(ImageProcessor(FIXED), encoded(picture, "TIFF"))
        assert found.min() > 250, mode


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"", "0 bytes"),
        (b"no picture at all", "not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a picture"),
        (np.zeros((0, 4, 3), np.uint8), "empty"),
        (
            np.zeros((4, 4, 3), np.float32),
            r"need uint8 .*; such as \(array \* 255\)\.round\(\)\.astype\('uint8'\), of floats",
        ),
        (np.zeros((3, 8, 8), np.uint8), r"need uint8 .*; such as array\.transpose\(1, 2, 0\)$"),
        (np.full((4, 4, 3), 200), "picture is an array int64 .* need uint8"),
        (np.ones((4, 4), bool), "picture is an array bool .* need uint8"),
        (np.zeros((4, 4, 7), np.uint8), "need uint8"),
        (Path("absent.png"), "does not exist"),
        (Path("/"), "not a file"),
        (encoded(Image.new("F", (8, 8)), "TIFF"), "mode F"),
        (encoded(Image.new("I", (8, 8), 200), "TIFF"), "pixels of 32 bits have no agreed range; say which values"),
    ],
)
def test_what_is_no_picture_is_refused_in_one_line(source: bytes | Path | np.ndarray, said: str) -> None:
    with pytest.raises(SampleError, match=said):
        whole(ImageProcessor(FIXED), source)


def test_limits_hold_before_decoding() -> None:
    data = encoded(Image.new("RGB", (100, 50)))
    media = Media("image", data)
    for limit, said in (
        ({"max_pixels": 4999}, "100 x 50 pixels is over max_pixels 4999"),
        ({"max_bytes": len(data) - 1}, "over max_bytes"),
    ):
        with pytest.raises(SampleError, match=said):
            ImageProcessor(VARIABLE, **limit).plan(media)
        for encoder_input in (VARIABLE, FIXED):
            with pytest.raises(SampleError, match=said):
                ImageProcessor(encoder_input, **limit).decode(media, ImageProcessor(encoder_input).plan(media))
    assert ImageProcessor(VARIABLE, max_pixels=5000, max_bytes=len(data)).plan(media).cells == 28
    small = encoded(Image.new("RGB", (4, 4)), "BMP")
    huge = small[:18] + struct.pack("<ii", 65_500, 65_500) + small[26:]
    with pytest.raises(SampleError, match=r"^picture of 4290250000 pixels is over max_pixels 72000000; set "):
        ImageProcessor(VARIABLE).plan(Media("image", huge))


def test_a_picture_over_a_limit_says_which_option_sets_it_and_what_else_can_be_done() -> None:
    data = encoded(Image.new("RGB", (100, 50)))
    for limits, said in (
        (Limits(4999, 10**6, "modalities.image.processor"),
         "picture of 100 x 50 pixels is over max_pixels 4999; set modalities.image.processor.max_pixels higher, or cut "
         "the picture into smaller ones first"),
        (Limits(10**6, 9, "modalities.image.processor"),
         f"picture of {len(data)} bytes is over max_bytes 9; set modalities.image.processor.max_bytes higher, or store "
         "it smaller"),
        (Limits(4999, 10**6), "picture of 100 x 50 pixels is over max_pixels 4999"),  # of a codec, which has no option
    ):  # fmt: skip
        with pytest.raises(SampleError) as caught:
            read_header(data, limits)
        assert str(caught.value) == said


@pytest.mark.parametrize("format", ["PNG", "GIF", "TIFF", "WEBP"])
def test_a_stated_limit_goes_beyond_that_of_pillow(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    options = {"compression": "tiff_lzw"} if format == "TIFF" else {}
    data = encoded(Image.new("RGB", (100, 50), "white"), format, **options)  # twice and more is an error of Pillow's
    with pytest.raises(SampleError, match=r"5000 pixels\D* is over max_pixels 999|100 x 50 .* max_pixels 999"):
        whole(ImageProcessor(FIXED, max_pixels=999), data)
    assert whole(ImageProcessor(FIXED, max_pixels=5000), data).min() > 250


def test_a_limit_has_an_end() -> None:
    with pytest.raises(ConfigError, match=r"max_pixels 2000000000, .* and 1073741824 pixels at most"):
        ImageProcessor(FIXED, max_pixels=2_000_000_000)


def test_pictures_of_one_size_are_planned_without_a_look_at_their_files() -> None:
    nowhere = Media("image", Path("/nowhere/at/all.jpg"))
    for processor in (ImageProcessor(FIXED), ImageProcessor(VARIABLE, size_px=64)):
        assert not processor.reads_headers
        plan = processor.plan(nowhere)
        assert plan.cells == 16
        with pytest.raises(SampleError, match="does not exist"):
            processor.decode(nowhere, plan)
    assert ImageProcessor(VARIABLE).reads_headers
    with pytest.raises(SampleError, match="does not exist"):
        ImageProcessor(VARIABLE).plan(nowhere)


def test_a_picture_has_no_time() -> None:
    with pytest.raises(
        SampleError, match=r"no time, .* write the row as segments and put the clip on the medium that has"
    ):
        ImageProcessor(FIXED).plan(Media("image", np.zeros((8, 8), np.uint8), clip=(0.0, 1.0)))


def test_sizes_that_the_encoder_cannot_take_are_refused() -> None:
    with pytest.raises(ConfigError, match="set its image_size"):
        ImageProcessor(FIXED, size_px=32)
    with pytest.raises(ConfigError, match="multiples of 16 x 16"):
        ImageProcessor(VARIABLE, size_px=40)
    with pytest.raises(ConfigError, match="no whole number"):
        ImageInput((16, 16), (40, 64))
    assert ImageProcessor(VARIABLE, size_px=(32, 48)).plan(Media("image", np.zeros((9, 9), np.uint8))).cells == 6


def test_no_file_is_left_open(tmp_path: Path, shared_data: Callable[[str], Path]) -> None:
    processor = pickle.loads(pickle.dumps(ImageProcessor(FIXED)))
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    for path, _ in corner_rows(shared_data):
        try:
            whole(processor, path)
        except SampleError:
            continue
    after = len(list(Path("/proc/self/fd").iterdir())) if before else 0
    assert after == before


def test_plugin_planning_and_decoding_import_no_torch() -> None:
    code = (
        "import sys, numpy as np, kosmos_vision.plugin\n"
        "assert 'PIL' not in sys.modules\n"
        "from kosmos import Media\n"
        "from kosmos_vision import ImageInput\n"
        "from kosmos_vision.images import ImageProcessor\n"
        "from kosmos_vision.samples import shapes\n"
        "p = ImageProcessor(ImageInput((16, 16), (64, 64)))\n"
        "m = next(shapes('train').document(0).media)\n"
        "p.decode(m, p.plan(m))\n"
        "assert not {'torch', 'timm', 'torchvision'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


LIMITS = Limits(1 << 26, 1 << 26)


def jpeg(width, height, orientation=None):
    rows = np.linspace(0, 255, height)[:, None] * np.ones((1, width))
    picture = Image.fromarray(np.stack([rows.astype(np.uint8)] * 3, -1))
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    out = io.BytesIO()
    picture.save(out, "JPEG", exif=exif)
    return out.getvalue()


def test_a_turned_jpeg_is_decoded_at_the_size_of_what_it_becomes():
    # shown 256 wide and 2,048 high; wanted as 128 x 512
    picture = load_rgb(jpeg(2048, 256, 6), LIMITS, 6, (512, 64))
    assert picture.size == (128, 1024)


def test_a_jpeg_keeps_twice_as_many_pixels_a_side():
    assert load_rgb(jpeg(1024, 1024), LIMITS, 1, (256, 256)).size == (512, 512)


def test_a_picture_of_its_own_shape_has_no_margins():
    red = np.zeros((40, 100, 3), np.uint8)
    red[..., 0] = 255
    processor = ImageProcessor(ImageInput((16, 16), None), resize="pad")
    media = Media("image", red)
    cells = processor.decode(media, processor.plan(media))
    assert (cells == np.array([255, 0, 0], np.uint8)[None, :, None, None]).all()


@pytest.mark.parametrize("size", [0, -16, 16])
def test_sizes_below_the_encoder_s_least_are_refused(size):
    with pytest.raises(ConfigError, match="no less than 32 x 32"):
        ImageProcessor(ImageInput((16, 16), None, min_cells=(2, 2)), size_px=size)


@pytest.mark.parametrize("value", [0, 9, 99])
def test_an_orientation_that_is_none_turns_nothing(value):
    header = read_header(jpeg(20, 10, value), LIMITS)
    assert (header.height, header.width, header.orientation) == (10, 20, 1)


@pytest.mark.parametrize(
    ("encoder_input", "options", "said"),
    [
        (VARIABLE, {"resize": "pad"}, ["resize pad has no effect: each picture keeps its own shape"]),
        (FIXED, {"max_cells": 16}, ["max_cells 16 has no effect: every picture is brought to 64 x 64 px"]),
        (VARIABLE, {"resize": "pad", "size_px": 64}, []),
        (VARIABLE, {"max_cells": 16}, []),
        (VARIABLE, {"max_cells": 16, "size_px": 64}, ["max_cells 16 has no effect"]),
        (FIXED, {"resize": "crop"}, []),
    ],
)
def test_options_without_effect_are_told_as_a_run_starts(
    encoder_input: ImageInput, options: dict[str, Any], said: list[str]
) -> None:
    hints = ImageProcessor(encoder_input, compile=False, **options).hints
    assert len(hints) == len(said)
    assert all(hint.startswith(line) for hint, line in zip(hints, said, strict=True))


@pytest.mark.parametrize("encoder_input", [FIXED, VARIABLE], ids=["fixed", "variable"])
@pytest.mark.parametrize("front", [b"", b"\n\n"])
def test_of_a_pdf_it_is_told_that_its_pages_have_to_be_rendered(encoder_input: ImageInput, front: bytes) -> None:
    with pytest.raises(SampleError, match=r"render its pages first \(pdftoppm -r 150 -png FILE.pdf page\)"):
        whole(ImageProcessor(encoder_input), front + b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n")
