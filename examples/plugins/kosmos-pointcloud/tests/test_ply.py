"""Broken PLY files, each with its cause."""

from __future__ import annotations

import io

import numpy as np
import pytest

from kosmos import SampleError
from kosmos_pointcloud.conditions import as_ply
from kosmos_pointcloud.ply import read_header, read_points

GOOD = as_ply(np.arange(9, dtype=np.float32).reshape(3, 3))
ASCII = as_ply(np.arange(9, dtype=np.float32).reshape(3, 3), "ascii")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (GOOD[:50], "line 3: ends in its middle"),
        (GOOD.replace(b"1.0\n", b"2.0\n"), "line 2: .* is not understood"),
        (GOOD.replace(b"binary_little_endian", b"zip"), "line 2"),
        (GOOD.replace(b"vertex 3", b"vertex -3"), "line 6"),
        (GOOD.replace(b"vertex 3", b"vertex 9999999999"), "line 6"),
        (GOOD.replace(b"float x", b"quaternion x"), "line 8"),
        (GOOD.replace(b"float y", b"float x"), "line 9"),
        (GOOD.replace(b"float z", b"float w"), "with x, y and z"),
        (GOOD.replace(b"element vertex", b"element corner"), "no element vertex"),
        (GOOD.replace(b"property float x", b"property list uchar float x"), "without lists"),
        (GOOD.replace(b"property double focus", b"property list uchar int focus"), "cannot be skipped"),
        (GOOD.replace(b"vertex 3", b"vertex 30"), "promises 30 points, 4 are there"),
        (GOOD.replace(b"camera 1", b"camera 2000000000"), "promises 3 points, 0 are there"),
        (ASCII.replace(b"vertex 3", b"vertex 30"), "promises 30 points, 4 are there"),
        (ASCII[: ASCII.index(b"255 6.0")], "promises 3 points, 2 are there"),
        (ASCII.replace(b"4.0", b"four"), "four"),
        (b"ply\n" + b"comment\n" * 300, "longer than 256 lines"),
    ],
)
def test_a_broken_ply_file_is_a_bad_sample_that_says_why(content: bytes, said: str) -> None:
    file = io.BytesIO(content)
    with pytest.raises(SampleError, match=said):
        read_points(file, read_header(file))
