"""Tables of numbers as text."""

from __future__ import annotations

import numpy as np
import pytest

from kosmos import SampleError
from kosmos_timeseries.table import parse_table

NAN = np.nan


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1\n2\n", [[1], [2]]),
        ("1,2\r\n3,4\r\n", [[1, 2], [3, 4]]),
        ("1;2\n3;\n", [[1, 2], [3, NAN]]),
        ("a\tb\n1\t-2e3\n", [[1, -2000]]),
        ("\ufeffx, y\n 1, NA\n\n null,nan\n", [[1, NAN], [NAN, NAN]]),
        ('"speed, rpm","y"\n"1",2\n', [[1, 2]]),
        ("Time,a\n2020-01-01 00:00,7\n2020-01-01 00:01,8\n", [[7], [8]]),
        ("1,2,3", [[1, 2, 3]]),
    ],
)
def test_a_table_is_read_with_its_header_its_gaps_and_any_delimiter(text: str, expected: list[list[float]]) -> None:
    np.testing.assert_array_equal(parse_table(text, 100), expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2\n3\n", "line 2: expected 2 fields as before, got 1"),
        ("a,b\n1,2\n3,x\n", "line 3: 'x' is no number"),
        ("a,b\n", "no row of numbers"),
        ("\n\n", "no row of numbers"),
        ("time\n1\n", "no row of numbers"),
        ("1\n" * 101, r"more than 100 values"),
    ],
)
def test_a_broken_table_says_where(text: str, said: str) -> None:
    with pytest.raises(SampleError, match=said):
        parse_table(text, 100)
