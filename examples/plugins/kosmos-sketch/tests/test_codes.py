"""Sketches as marks, and back."""

from __future__ import annotations

import re

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given

from kosmos import SampleError
from kosmos_sketch.codes import BEGIN, CODES, END, MARKS, ROW, marks_of, picture_of
from kosmos_sketch.samples import ALL, sketch

SHAPES_OF = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=64)


@given(hnp.arrays(np.uint8, SHAPES_OF))
def test_marks_draw_the_picture_that_they_are_of_but_for_its_grays(picture: np.ndarray) -> None:
    marks = marks_of(picture)
    assert set(marks) <= set(MARKS)
    drawn = picture_of(marks)
    assert marks_of(drawn) == marks
    height, width = picture.shape
    whole = np.pad(picture, ((0, -height % 2), (0, -width % 2)), constant_values=255).astype(float)
    means = whole.reshape(whole.shape[0] // 2, 2, whole.shape[1] // 2, 2).mean((1, 3))
    assert abs(drawn[: len(whole) : 2, : whole.shape[1] : 2] - means).max() <= 85


def test_a_sketch_is_drawn_nearly_as_it_is() -> None:
    for shown in ALL:
        picture = sketch(shown)
        assert (abs(picture_of(marks_of(picture)) - picture.astype(float)) < 128).mean() > 0.9, shown


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        ([], "got 0 marks"),
        ([BEGIN, ROW, END], "rows have [0] patches"),
        ([BEGIN, CODES[0], END], "rows that end with <sketch-row>"),
        ([BEGIN, CODES[0], ROW, CODES[0], CODES[0], ROW, END], "rows have [1, 2] patches"),
        ([BEGIN, *[CODES[0]] * 17, ROW, END], "rows have [17] patches"),
        ([BEGIN, *[CODES[0], ROW] * 17, END], "rows have [1] patches"),
        ([BEGIN, BEGIN, ROW, END], "<sketch> stands within one"),
    ],
)
def test_what_is_no_sketch_is_refused(marks: list[str], said: str) -> None:
    with pytest.raises(SampleError, match=re.escape(said)):
        picture_of(marks)
