"""Which rows of many are scored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.spread import spread, spread_row


@given(st.integers(1, 3000), st.integers(1, 600), st.booleans())
def test_as_many_distinct_rows_as_are_wanted_in_their_order(count, most, even):
    rows = spread(count, most, even=even)
    assert len(rows) == min(count, most)
    assert (np.diff(rows) > 0).all() and rows[0] >= 0 and rows[-1] < count
    assert [spread_row(count, most, place, even=even) for place in range(len(rows))] == rows.tolist()


@pytest.mark.parametrize(("count", "most"), [(300, 150), (225, 150), (2048, 512), (1600, 400)])
def test_rows_follow_nothing_that_alternates_in_the_order_of_the_data(count, most):
    rows = spread(count, most)
    for period in (2, 3, 4):
        shares = np.bincount(rows % period, minlength=period) / most
        assert np.abs(shares - 1 / period).max() < 0.08  # 0.06 at most; of every n-th row it is 0.5 and more


def test_every_stretch_of_the_data_has_its_share():
    rows = spread(100_000, 1000)
    assert np.bincount(rows // 10_000).tolist() == pytest.approx([100] * 10, abs=12)


def test_the_rows_are_the_same_wherever_and_whenever_they_are_drawn():
    assert spread(100, 7).tolist() == [6, 18, 29, 51, 61, 94, 98]
    assert spread(100, 7, even=True).tolist() == [0, 14, 28, 42, 57, 71, 85]
