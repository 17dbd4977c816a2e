"""Large pictures in tiles beside an overview: which are chosen, what stands among the tokens, and their pixels."""

from __future__ import annotations

import io
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from kosmos import ConfigError, Grid, Media, SampleError
from kosmos.plugins import load_plugins
from kosmos.testing import Conditions, promises_of
from kosmos_vision.images import ImageInput, ImageProcessor
from kosmos_vision.pictures import Limits, load_rgb
from kosmos_vision.resampling import Resampler
from kosmos_vision.tiles import WHOLE, Tiling, choose_tiling

FIXED = ImageInput((16, 16), (32, 48))
H, W = 32, 48
NOISE = np.random.default_rng(0).integers(0, 256, (150, 210, 3), np.uint8)
GRID = Grid(1, 2, 3)
SIDE = st.integers(1, 400)


def shown(processor: ImageProcessor, source, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The overview [3, h, w], and the tiles joined as they lie [3, rows x h, columns x w]."""
    media = Media("image", source)
    plan = processor.plan(media)
    if seed is None:
        cells = processor.decode(media, plan)
    else:
        cells = processor.augmented(media, plan, np.random.default_rng(seed))
    assert cells.shape == (plan.cells, *processor.cell_shape) and cells.dtype == processor.cell_dtype
    views = cells.reshape(-1, *GRID[1:], 3, 16, 16).transpose(0, 3, 1, 4, 2, 5).reshape(-1, 3, H, W)
    rows, columns = plan.recipe.tiling
    assert len(views) == 1 + rows * columns
    tiles = views[1:].reshape(rows, columns, 3, H, W).transpose(2, 0, 3, 1, 4)
    return views[0], tiles.reshape(3, rows * H, columns * W)


def encoded(pixels: np.ndarray, format: str, orientation: int = 1) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    with io.BytesIO() as file:
        Image.fromarray(pixels).save(file, format, exif=exif)
        return file.getvalue()


@given(height=SIDE, width=SIDE, most=st.integers(1, 20))
def test_no_other_tiles_keep_more_of_a_picture_and_none_as_much_in_fewer(height: int, width: int, most: int) -> None:
    def allowed(side: int, tile: int) -> range:
        return range(1, max(1, int(Fraction(side, tile) + Fraction(1, 2))) + 1)

    def worth(tiling: Tiling) -> tuple[Fraction, int]:
        kept = min(Fraction(tiling.rows * H, height), Fraction(tiling.columns * W, width), Fraction(1))
        return kept, -tiling.rows * tiling.columns

    all_ = [Tiling(r, c) for r in allowed(height, H) for c in allowed(width, W) if r * c <= most]
    best = max(all_, key=worth)
    assert choose_tiling((height, width), (H, W), most) == best
    assert [one for one in all_ if worth(one) == worth(best)] == [best]


@given(height=SIDE, width=SIDE, most=st.integers(1, 20))
def test_a_picture_has_no_more_tiles_than_said_or_than_its_pixels_fill(height: int, width: int, most: int) -> None:
    rows, columns = choose_tiling((height, width), (H, W), most)
    assert rows * columns <= most
    assert 3 * rows * H <= 4 * max(height, H) and 3 * columns * W <= 4 * max(width, W)


@pytest.mark.parametrize(
    ("size", "most", "tiling"),
    [
        ((3000, 4000), 12, (3, 4)),
        ((3000, 4000), 4, (2, 2)),
        ((4000, 3000), 6, (3, 2)),
        ((1684, 1190), 6, (3, 2)),
        ((1080, 1920), 2, (1, 2)),
        ((50, 2000), 12, (1, 9)),
        ((480, 640), 12, (2, 3)),
        ((1000, 1000), 3, (1, 1)),
        ((1000, 10), 9, (4, 1)),
        ((335, 335), 12, (1, 1)),
        ((1, 1), 12, (1, 1)),
    ],
)
def test_tiles_of_224_pixels_for_a_photo_a_page_a_screen_and_a_line(size, most, tiling) -> None:
    assert choose_tiling(size, (224, 224), most) == tiling


@given(height=SIDE, width=SIDE, most=st.integers(2, 9), resize=st.sampled_from(["squash", "pad"]))
@settings(max_examples=60, deadline=None)
def test_planned_cells_are_produced_and_each_row_of_tiles_begins_a_line(height, width, most, resize) -> None:
    processor = ImageProcessor(FIXED, max_tiles=most, resize=resize)
    pixels = np.zeros((height, width, 3), np.uint8)
    plan = processor.plan(Media("image", pixels))
    rows, columns = plan.recipe.tiling
    lines = ["\n", *[GRID] * columns] * rows if rows * columns > 1 else []
    assert plan.layout == ("<image>", GRID, *lines, "</image>")
    assert len(plan.grids) <= 1 + most
    media = Media("image", pixels)
    assert processor.decode(media, plan).shape == (plan.cells, 3, 16, 16)


@given(height=st.integers(1, 47), width=st.integers(1, 71))
def test_a_picture_no_larger_than_a_tile_is_as_without_tiles(height: int, width: int) -> None:
    pixels = NOISE[:height, :width]
    media, plain, tiled = Media("image", pixels), ImageProcessor(FIXED), ImageProcessor(FIXED, max_tiles=9)
    plans = plain.plan(media), tiled.plan(media)
    assert plans[0].layout == plans[1].layout
    assert np.array_equal(plain.decode(media, plans[0]), tiled.decode(media, plans[1]))


@given(height=st.integers(60, 200), width=st.integers(60, 300), most=st.integers(4, 12))
@settings(max_examples=30, deadline=None)
def test_tiles_are_the_picture_resized_once_and_so_is_the_overview(height: int, width: int, most: int) -> None:
    pixels = np.resize(NOISE, (height, width, 3))
    processor, picture = ImageProcessor(FIXED, max_tiles=most), Image.fromarray(pixels)
    rows, columns = choose_tiling((height, width), (H, W), most)
    if rows * columns > 1:
        overview, joined = shown(processor, pixels)
        assert np.array_equal(joined, Resampler(False).planes(picture, (rows * H, columns * W)))
        assert np.array_equal(overview, Resampler(False).planes(picture, (H, W)))


def test_a_large_jpeg_is_decoded_as_finely_as_its_tiles_need() -> None:
    file = encoded(np.kron(NOISE, np.ones((4, 4, 1), np.uint8)), "JPEG")  # 600 x 840
    overview, joined = shown(ImageProcessor(FIXED, max_tiles=4), file)
    assert joined.shape == (3, 2 * H, 2 * W)
    picture = load_rgb(file, Limits(10**7, 10**7), None, joined.shape[1:])
    assert picture.size == (210, 150)  # a quarter, where the overview alone would take an eighth
    assert np.array_equal(joined, Resampler(False).planes(picture, (2 * H, 2 * W)))
    assert np.array_equal(overview, Resampler(False).planes(picture, (H, W)))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_tiles_of_a_turned_picture_are_those_of_the_upright_one(orientation: int) -> None:
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # the turn that undoes the one of this orientation
    upright = Image.fromarray(NOISE)
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(back[orientation]))
    processor = ImageProcessor(FIXED, max_tiles=12)
    file = encoded(np.asarray(stored), "PNG", orientation)
    assert processor.plan(Media("image", file)).recipe.tiling == (4, 3)
    for found, expected in zip(shown(processor, file), shown(processor, NOISE), strict=True):
        assert np.array_equal(found, expected)


def test_pad_gives_tiles_of_the_picture_with_its_margins() -> None:
    overview, joined = shown(ImageProcessor(FIXED, max_tiles=12, resize="pad"), np.zeros_like(NOISE))
    assert joined.shape == (3, 4 * H, 3 * W)
    inner = (round(150 * 3 * W / 210), 3 * W), (H, round(210 * H / 150))
    for picture, (rows, columns) in zip((joined, overview), inner, strict=True):
        expected = np.full_like(picture, 128)
        top, left = (picture.shape[1] - rows) // 2, (picture.shape[2] - columns) // 2
        expected[:, top : top + rows, left : left + columns] = 0
        assert np.array_equal(picture, expected)


def test_a_flip_turns_the_overview_and_all_tiles_together() -> None:
    plain = shown(ImageProcessor(FIXED, max_tiles=6), NOISE)
    flipped = shown(ImageProcessor(FIXED, max_tiles=6, flip=1.0), NOISE, seed=0)
    for one, other in zip(plain, flipped, strict=True):
        assert np.array_equal(one[:, :, ::-1], other)


@pytest.mark.parametrize("resize", ["squash", "pad"])
def test_the_overview_and_the_tiles_show_the_same_part_in_the_same_colours(resize: str) -> None:
    across, down = np.meshgrid(np.linspace(20, 230, 240), np.linspace(30, 200, 160))
    ramp = np.stack([across, down, (across + down) / 2], -1).astype(np.uint8)
    processor = ImageProcessor(FIXED, max_tiles=9, resize=resize, flip=0.5, crop=0.3, colour=0.3)
    different = set()
    for seed in range(20):
        overview, joined = shown(processor, ramp, seed)
        rows, columns = joined.shape[1] // H, joined.shape[2] // W
        means = joined.reshape(3, H, rows, W, columns).mean((2, 4))
        inner = np.s_[:, 2:-2, 2:-2]  # at the edges resampling weighs otherwise than a mean
        assert np.abs(overview[inner] - means[inner]).max() < 4
        different.add(overview.tobytes())
    assert len(different) == 20


def test_a_header_is_read_only_where_pictures_may_be_split() -> None:
    assert not ImageProcessor(FIXED).reads_headers
    assert not ImageProcessor(FIXED, max_tiles=1).reads_headers
    assert ImageProcessor(FIXED, max_tiles=2).reads_headers
    file, split = encoded(NOISE, "PNG"), ImageProcessor(FIXED, max_tiles=2, max_pixels=150 * 210 - 1)
    with pytest.raises(SampleError, match="210 x 150 pixels is over max_pixels 31499"):
        split.plan(Media("image", file))


@pytest.mark.parametrize(
    ("encoder_input", "options", "says"),
    [
        (FIXED, {"max_tiles": 0}, "max_tiles 0: need at least 1, which splits no picture"),
        (FIXED, {"max_tiles": 4, "resize": "crop"}, "max_tiles 4: resize crop .*; set resize to squash or pad"),
        (ImageInput((16, 16), None), {"max_tiles": 4}, "max_tiles 4: pictures keep their own shape here, in max_cells"),
    ],
)  # fmt: skip
def test_what_has_no_tiles_is_refused_in_a_line_that_says_what_to_set(encoder_input, options, says) -> None:
    with pytest.raises(ConfigError, match=says):
        ImageProcessor(encoder_input, **options)


def test_an_encoder_of_any_size_takes_tiles_of_a_given_one() -> None:
    processor = ImageProcessor(ImageInput((16, 16), None), size_px=(H, W), max_tiles=4)
    assert processor.plan(Media("image", NOISE)).grids == (GRID,) * 5
    assert processor.plan(Media("image", NOISE[:H, :W])).recipe.tiling == WHOLE


@pytest.mark.slow
def test_pictures_in_tiles_keep_every_promise() -> None:
    """But those that the kit marks as slow, which are checked on the modality without tiles."""
    examples = [encoded(np.resize(NOISE, (200, side, 3)), kind) for side, kind in ((150, "PNG"), (300, "JPEG"))]
    conditions = Conditions(
        examples={"image": [Media("image", file) for file in examples]},
        options={"modality image": {"max_tiles": 6, "flip": 0.5}},
    )
    wanted = promises_of(load_plugins(), plugins=["vision"], conditions=conditions, fast=True)
    verdicts = {p.id: p.verdict() for p in wanted if p.component == "modality image"}
    assert [v.message for v in verdicts.values() if v.outcome == "failed"] == []
    assert sum(v.outcome == "passed" for v in verdicts.values()) > 10
