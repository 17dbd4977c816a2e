"""Pictures that are changed at random in training."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kosmos import ConfigError, Document, Documents, Media, Text
from kosmos.data.lane import Feed, Lane
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner, Route
from kosmos.data.slots import OnePerCell
from kosmos.data.tokenizer import load_tokenizer
from kosmos_vision.images import ImageInput, ImageProcessor

FIXED = ImageInput((16, 16), (64, 64))
ANY = ImageInput((16, 16), None)
RAMP = np.broadcast_to(np.linspace(40, 200, 96).astype(np.uint8)[None, :, None], (80, 96, 3)).copy()
RAMP[:8, :, 0] = 250  # so that up and down differ, too


def whole(processor: ImageProcessor, cells: np.ndarray, rows: int) -> np.ndarray:
    """Cells [N, 3, h, w] as the picture [3, H, W]."""
    columns = len(cells) // rows
    h, w = processor.input.patch_px
    return cells.reshape(rows, columns, 3, h, w).transpose(2, 0, 3, 1, 4).reshape(3, rows * h, columns * w)


def taken(encoder_input: ImageInput, pixels: np.ndarray, seed: int = 0, **options) -> tuple[np.ndarray, np.ndarray]:
    """A picture as it is, and as it is changed."""
    processor = ImageProcessor(encoder_input, **options)
    media = Media("image", pixels)
    plan = processor.plan(media)
    (grid,) = plan.grids
    cells = processor.decode(media, plan), processor.augmented(media, plan, np.random.default_rng(seed))
    assert cells[0].shape == cells[1].shape and cells[1].dtype == np.uint8 and cells[1].flags.c_contiguous
    return tuple(whole(processor, one, grid.h) for one in cells)


@pytest.mark.parametrize("encoder_input", [FIXED, ANY])
def test_flip_mirrors_left_and_right_with_its_probability(encoder_input: ImageInput) -> None:
    plain, changed = taken(encoder_input, RAMP, flip=1.0)
    assert np.array_equal(changed, plain[:, :, ::-1])
    flips = [not np.array_equal(*taken(encoder_input, RAMP, seed, flip=0.25)) for seed in range(200)]
    assert 30 <= sum(flips) <= 70


@given(
    seed=st.integers(0, 2**32), crop=st.floats(0.05, 1.0), height=st.integers(17, 200), width=st.integers(17, 200),
    resize=st.sampled_from(["squash", "crop", "pad"]), fixed=st.booleans(), exact=st.booleans(),
)  # fmt: skip
def test_a_part_has_the_share_and_the_shape_that_were_asked_for(
    seed, crop, height, width, resize, fixed, exact
) -> None:
    processor = ImageProcessor(FIXED if fixed else ANY, crop=crop, resize=resize, exact=exact)
    change = processor.augmentation.draw(np.random.default_rng(seed))
    left, top, right, bottom = change.part(width, height)
    assert -1e-6 <= left < right <= width + 1e-6 and -1e-6 <= top < bottom <= height + 1e-6
    share = (right - left) * (bottom - top) / (width * height)
    assert crop - 1e-6 <= share <= 1 + 1e-6
    assert (right - left) / (bottom - top) == pytest.approx(width / height)
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    taken(processor.input, pixels, seed, crop=crop, resize=resize, exact=exact)  # as many cells as planned


def test_a_part_shows_what_lies_there() -> None:
    spans = [np.ptp(taken(FIXED, RAMP, seed, crop=0.25)[1][1, 40].astype(int)) for seed in range(40)]
    plain = np.ptp(taken(FIXED, RAMP)[0][1, 40].astype(int))
    assert 0.45 * plain <= min(spans) <= 0.65 * plain and 0.85 * plain <= max(spans) <= plain


def test_large_jpegs_are_decoded_as_finely_as_a_part_needs(tmp_path) -> None:
    stripes = np.repeat(np.arange(1024) // 4 % 2 * 255, 1024).reshape(1024, 1024).astype(np.uint8)
    Image.fromarray(np.repeat(stripes[..., None], 3, 2)).save(tmp_path / "fine.jpg", quality=95)
    processor = ImageProcessor(FIXED, crop=0.01)
    seed = next(s for s in range(999) if processor.augmentation.draw(np.random.default_rng(s)).share < 0.02)
    media = Media("image", tmp_path / "fine.jpg")
    cells = processor.augmented(media, processor.plan(media), np.random.default_rng(seed))
    assert cells.std() > 50  # at an eighth of its size the picture is grey


def test_colours_stay_within_their_bounds_and_grey_stays_grey() -> None:
    grey = np.repeat(RAMP[..., 1:2], 3, axis=2)
    for seed in range(20):
        plain, changed = taken(FIXED, grey, seed, colour=0.3)
        assert np.abs(changed[0].astype(int) - changed[1]).max() <= 1
        assert 0.65 * plain.mean() <= changed.mean() <= 1.35 * plain.mean()
    assert not np.array_equal(*taken(FIXED, RAMP, colour=0.3))


@pytest.mark.parametrize(("exact", "mean"), [(False, 128), (True, 127)])
def test_margins_keep_the_mean_colour_of_the_encoder(exact: bool, mean: int) -> None:
    wide = np.repeat(RAMP, 3, axis=1)
    for seed in range(10):
        plain, changed = taken(FIXED, wide, seed, resize="pad", exact=exact, colour=0.4, flip=0.5)
        margin = (plain == mean).all(0).all(1)
        assert margin.sum() > 30 and (changed[:, margin] == mean).all()
        assert not np.array_equal(changed[:, ~margin], plain[:, ~margin])


def test_without_augmentation_a_picture_is_as_it_is_and_the_lane_is_told_so() -> None:
    assert not ImageProcessor(FIXED).augments
    assert all(ImageProcessor(FIXED, **one).augments for one in ({"flip": 0.5}, {"crop": 0.5}, {"colour": 0.1}))
    assert np.array_equal(*taken(FIXED, RAMP))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"flip": 1.5}, "flip: expected a probability from 0 to 1, got 1.5"),
        ({"crop": 0.0}, "crop: expected a share of the area, above 0 and at most 1, got 0"),
        ({"colour": 1.0}, "colour: expected a share from 0 to below 1, got 1"),
    ],
)
def test_what_is_out_of_range_is_refused(options, says) -> None:
    with pytest.raises(ConfigError, match=says):
        ImageProcessor(FIXED, **options)


def test_both_of_a_pair_are_shown_the_same_picture() -> None:
    processor = ImageProcessor(FIXED, crop=0.3, flip=0.5, colour=0.3)
    tokenizer = load_tokenizer("bytes", ("<image>", "</image>"))
    routes = {"image": Route(processor, "image", OnePerCell(), frozenset(tokenizer.marks))}
    planner = Planner(tokenizer, routes, 512, {}, pairs=True)
    asked = (Media("image", RAMP), Media("image", RAMP[::-1].copy()), Text("Q"))
    pair = Document("d", (*asked, Text("a", train=True)), rejected=(*asked, Text("b", train=True)))
    mixture = Mixture((Documents("pairs", [pair]),), (1.0,), False, 0, num_lanes=1)
    lane, seen = Lane(Feed(mixture, planner, 1, ("image",)), 0), []
    for _ in range(4):
        values = lane.turn().arrays.media["image"].values
        per_pair = 2 * len(asked[:2]) * 4 * 4
        for begin in range(0, len(values), per_pair):
            better, worse = np.split(values[begin : begin + per_pair], 2)
            assert np.array_equal(better, worse)
            seen.append(better.tobytes())
    assert len({*seen}) == len(seen)  # and another one whenever the pair comes again
