"""Pictures that keep their own shape: never over the budget, stretched by little, and nothing lost where they fit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kosmos_vision.own_shape import MOST_STRETCH, fit_cells

PATCH = (16, 16)
SIDE = st.one_of(st.integers(1, 400), st.integers(1, 20_000))
"""Pixels: as often of few cells as of many."""
BUDGET = st.integers(6, 1200)


def scales(size_px: tuple[int, int], grid: tuple[int, int]) -> tuple[float, float]:
    """Of the side that is made smaller by more, and of the other."""
    both = [cells * 16 / size for cells, size in zip(grid, size_px, strict=True)]
    return min(both), max(both)


def fits(size_px: tuple[int, int], budget: int) -> bool:
    return -(-size_px[0] // 16) * -(-size_px[1] // 16) <= budget


@pytest.mark.parametrize(
    ("size_px", "budget", "grid"),
    [
        ((23, 400), 256, (2, 25)),
        ((40, 400), 256, (3, 25)),
        ((400, 40), 256, (25, 3)),
        ((256, 256), 256, (16, 16)),
        ((300, 3000), 64, (2, 20)),
        ((3508, 2480), 256, (19, 13)),
        ((2000, 3000), 256, (13, 19)),
        ((30, 12000), 256, (1, 256)),  # no grid of the budget is as long
    ],
)
def test_known_pictures_take_the_cells_that_stretch_them_little(
    size_px: tuple[int, int], budget: int, grid: tuple[int, int]
) -> None:
    assert fit_cells(size_px, PATCH, budget) == grid


@given(SIDE, SIDE, st.integers(1, 1200))
@settings(max_examples=200, deadline=None)
def test_never_over_the_budget_and_never_larger_by_a_cell(height: int, width: int, budget: int) -> None:
    rows, columns = fit_cells((height, width), PATCH, budget)
    assert 1 <= rows * columns <= budget
    assert (rows - 1) * 16 < height
    assert (columns - 1) * 16 < width


@given(SIDE, SIDE, BUDGET)
@settings(max_examples=200, deadline=None)
def test_what_fits_loses_no_pixel_and_what_does_not_is_stretched_by_a_quarter_at_most(
    height: int, width: int, budget: int
) -> None:
    grid = fit_cells((height, width), PATCH, budget)
    lower, higher = scales((height, width), grid)
    if fits((height, width), budget):
        assert lower >= 1
    else:
        assert higher <= MOST_STRETCH * lower or min(grid) == 1


@given(SIDE, SIDE, BUDGET, st.integers(1, 300))
@settings(max_examples=200, deadline=None)
def test_a_larger_budget_never_shows_less(height: int, width: int, budget: int, more: int) -> None:
    size_px = height, width
    less, most = (scales(size_px, fit_cells(size_px, PATCH, n)) for n in (budget, budget + more))
    if fits(size_px, budget):
        assert most == less
    elif fits(size_px, budget + more):
        assert most[0] >= 1
    elif less[1] <= MOST_STRETCH * less[0]:  # else any grid that stretches by less is better
        assert most[0] / (most[1] / most[0]) >= less[0] / (less[1] / less[0]) - 1e-12


@given(SIDE, SIDE, st.integers(1, 1200))
@settings(max_examples=100, deadline=None)
def test_a_turned_picture_takes_the_turned_grid_and_the_longer_side_no_fewer_cells(
    height: int, width: int, budget: int
) -> None:
    rows, columns = fit_cells((height, width), PATCH, budget)
    assert fit_cells((width, height), PATCH, budget) == (columns, rows)
    assert rows <= columns if height <= width else rows >= columns


@given(SIDE, SIDE, st.integers(12, 300))
@settings(max_examples=100, deadline=None)
def test_what_the_encoder_takes_at_least_and_at_most_is_kept_to(height: int, width: int, budget: int) -> None:
    rows, columns = fit_cells((height, width), PATCH, budget, least=(2, 4), most=(10, 12))
    assert 2 <= rows <= 10
    assert 4 <= columns <= 12
    assert rows * columns <= budget
