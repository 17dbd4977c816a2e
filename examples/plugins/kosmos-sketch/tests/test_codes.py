"""Sketches as codes, and back."""

from __future__ import annotations

import re

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given

from kosmos import Media, SampleError
from kosmos_sketch.codes import ROW, SketchCodec, drawn
from kosmos_sketch.pgm import read_pgm
from kosmos_sketch.samples import ALL, sketch

CODEC = SketchCodec()
SHAPES_OF = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=64)


def codes_of(picture: np.ndarray) -> np.ndarray:
    return CODEC.encode(Media("sketch", picture))


@given(hnp.arrays(np.uint8, SHAPES_OF))
def test_codes_draw_the_picture_that_they_are_of_but_for_its_grays(picture: np.ndarray) -> None:
    codes = codes_of(picture)
    again = read_pgm(CODEC.decode(codes).content)
    assert codes_of(again).tolist() == codes.tolist()
    height, width = picture.shape
    whole = np.pad(picture, ((0, -height % 2), (0, -width % 2)), constant_values=255).astype(float)
    means = whole.reshape(whole.shape[0] // 2, 2, whole.shape[1] // 2, 2).mean((1, 3))
    assert abs(again[: len(whole) : 2, : whole.shape[1] : 2] - means).max() <= 85


def test_a_sketch_is_drawn_nearly_as_it_is() -> None:
    for shown in ALL:
        picture = sketch(shown)
        assert (abs(drawn(codes_of(picture)) - picture.astype(float)) < 128).mean() > 0.9, shown


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ([], "0 codes, of which the last does not end a row"),
        ([ROW], "1 rows of [0] patches"),
        ([0], "1 codes, of which the last does not end a row"),
        ([0, ROW, 0], "3 codes, of which the last does not end a row"),
        ([0, ROW, 0, 0, ROW], "2 rows of [1, 2] patches"),
        ([*[0] * 17, ROW], "1 rows of [17] patches"),
        ([0, ROW] * 17, "17 rows of [1] patches"),
    ],
)
def test_what_is_no_sketch_is_refused(codes: list[int], said: str) -> None:
    with pytest.raises(SampleError, match=re.escape(said)):
        CODEC.decode(np.array(codes, np.int64))
