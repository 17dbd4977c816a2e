"""Read ``.npy`` without trusting it: the header first, then exactly the bytes that it may claim. Never a pickle."""

from __future__ import annotations

from math import prod
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from kosmos import SampleError

MAGIC = b"\x93NUMPY"
MAX_HEADER = 4096
"""Characters; numpy evaluates the header as a literal, which costs more the longer it is."""
_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}


class Header(NamedTuple):
    """What the file says that it holds."""

    shape: tuple[int, ...]
    columns_first: bool
    dtype: np.dtype[Any]


def read_header(file: BinaryIO) -> Header:
    """The header, leaving ``file`` at the first value.

    Raises:
        SampleError: no header, a version that only tables with named fields need, or values that are no numbers.
    """
    try:
        version = npy_format.read_magic(file)
        if version not in _READERS:
            raise ValueError(f"version {version} is not 1.0 or 2.0")
        header = Header(*_READERS[version](file, max_header_size=MAX_HEADER))
    except Exception as error:  # numpy evaluates the header: from a broken one anything may come
        raise SampleError(f"npy header is broken: {error}") from error
    if header.dtype.kind not in "fiu":
        raise SampleError(f"npy holds values of type {header.dtype}, expected real numbers (pickles are never read)")
    if any(length < 0 for length in header.shape):
        raise SampleError(f"npy header states the impossible shape {header.shape}")
    return header


def read_values(file: BinaryIO, header: Header) -> NDArray[Any]:
    """The array behind ``header``, whose size the caller has checked.

    Raises:
        SampleError: the file ends before, or goes on behind it.
    """
    size = prod(header.shape) * header.dtype.itemsize
    data = file.read(size + 1)
    if len(data) != size:
        found = "more" if len(data) > size else f"only {len(data)}"
        raise SampleError(f"npy header promises {size} bytes of values, {found} are there")
    return np.frombuffer(data, header.dtype).reshape(header.shape, order="F" if header.columns_first else "C")
