"""Read ``.npy`` without trusting it: the header first, then exactly the bytes that it may claim. Never a pickle."""

from __future__ import annotations

from io import SEEK_END
from math import prod
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from kosmos.errors import SampleError

NPY_MAGIC = b"\x93NUMPY"
"""The first bytes of a file; a suffix may lie."""
_MAX_HEADER = 4096
"""Characters; numpy evaluates the header as a literal, which costs more the longer it is."""
_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}


class NpyHeader(NamedTuple):
    """What an ``.npy`` file says that it holds."""

    shape: tuple[int, ...]
    columns_first: bool
    """Whether the values lie in Fortran order."""
    dtype: np.dtype[Any]


def read_npy_header(file: BinaryIO) -> NpyHeader:
    """The header, leaving ``file`` at the first value. For ``plan``: nothing of the values is read.

    Raises:
        SampleError: no header, a version that only tables with named fields need, or values that are no real numbers.
    """
    try:
        version = npy_format.read_magic(file)
        if version not in _READERS:
            raise ValueError(f"version {version} is not 1.0 or 2.0")
        header = NpyHeader(*_READERS[version](file, max_header_size=_MAX_HEADER))
    except Exception as error:  # numpy evaluates the header: from a broken one anything may come
        raise SampleError(f"npy header is broken: {' '.join(str(error).split())}") from error
    if header.dtype.kind not in "fiu":
        raise SampleError(f"npy holds values of type {header.dtype}, expected real numbers (pickles are never read)")
    if any(length < 0 for length in header.shape):
        raise SampleError(f"npy header states the impossible shape {header.shape}")
    return header


def read_npy_values(file: BinaryIO, header: NpyHeader) -> NDArray[Any]:
    """The array behind ``header``. No memory is taken for values that are not there.

    Args:
        file: seekable, at the first value, as ``read_npy_header`` leaves it.

    Raises:
        SampleError: the file ends before, or goes on behind it.
    """
    size, start = prod(header.shape) * header.dtype.itemsize, file.tell()
    there = file.seek(0, SEEK_END) - start
    file.seek(start)
    if there != size:
        found = "more" if there > size else f"only {there}"
        raise SampleError(f"npy header promises {size} bytes of values, {found} are there")
    values = np.frombuffer(file.read(size), header.dtype)
    return values.reshape(header.shape, order="F" if header.columns_first else "C")
