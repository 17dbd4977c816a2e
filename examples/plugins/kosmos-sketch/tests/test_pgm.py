"""PGM files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kosmos import SampleError
from kosmos_sketch.pgm import as_pgm, read_pgm


def test_a_picture_is_read_as_it_was_written(tmp_path: Path) -> None:
    picture = np.arange(35, dtype=np.uint8).reshape(5, 7)
    file = tmp_path / "a.pgm"
    file.write_bytes(as_pgm(picture))
    assert np.array_equal(read_pgm(file), picture)
    assert np.array_equal(read_pgm(b"P5\n# by hand\n7 5\n255\n" + picture.tobytes()), picture)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no PGM"),
        (b"P2 2 2 255\n0 0 0 0", "no PGM"),
        (b"P5 2 2 255\nabc", "breaks off: 3 of 4"),
        (b"P5 2 2 65535\nabcdefgh", "white is 65535"),
        (b"P5 65 2 255\n" + bytes(130), "2 x 65 pixels"),
        (b"P5 0 2 255\n", "2 x 0 pixels"),
    ],
)
def test_what_is_none_is_a_bad_sample(data: bytes, said: str) -> None:
    with pytest.raises(SampleError, match=said):
        read_pgm(data)


def test_a_file_that_is_not_there_is_one_too(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="cannot be read"):
        read_pgm(tmp_path / "gone.pgm")
