"""``.npy`` files that lie cost nothing but a SampleError."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, floating_dtypes, integer_dtypes

from kosmos import SampleError, read_npy_header, read_npy_values


def _saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _read(data: bytes) -> np.ndarray:
    file = io.BytesIO(data)
    return read_npy_values(file, read_npy_header(file))


@settings(deadline=None)
@given(array=arrays(st.one_of(integer_dtypes(), floating_dtypes()), array_shapes(min_dims=0, min_side=0)), fortran=...)
def test_what_numpy_saved_comes_back(array: np.ndarray, fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    back = _read(_saved(array))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@settings(deadline=None)
@given(at=st.integers(0, 150), bit=st.integers(0, 7), keep=st.integers(0, 200))
def test_damage_is_a_sample_error_or_other_numbers(at: int, bit: int, keep: int) -> None:
    data = bytearray(_saved(np.arange(6.0).reshape(2, 3)))
    data[at] ^= 1 << bit
    for damaged in (bytes(data), bytes(data[:keep])):
        try:
            assert _read(damaged).dtype.kind in "fiu"
        except SampleError as error:
            assert "\n" not in str(error)  # noqa: PT017 - many damages do no harm


@pytest.mark.parametrize("shape", ["(2, 4)", "(1, 1)", "(99999999999, 9)", "(10**30,)", "(-1, 6)"])
def test_a_header_that_promises_another_size(shape: str) -> None:
    data = _saved(np.arange(6.0).reshape(2, 3))
    lie = data.replace(b"(2, 3), }" + b" " * (len(shape) - 6), f"{shape}, }}".encode(), 1)
    assert len(lie) == len(data)
    with pytest.raises(SampleError, match="npy header"):
        _read(lie)


def test_objects_are_never_read() -> None:
    with pytest.raises(SampleError, match="pickles are never read"):
        _read(_saved(np.array([{"a": 1}], dtype=object)))
