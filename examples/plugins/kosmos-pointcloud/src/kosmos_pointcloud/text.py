"""Points from lines of text: numbers between white space or commas, ``#`` before a comment."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kosmos import SampleError


def parse_rows(lines: Sequence[str], *, columns: Sequence[int] = (0, 1, 2)) -> NDArray[np.float64]:
    """The three ``columns`` of all lines that hold something: [points, 3].

    Raises:
        SampleError: a line has too few columns, or one that is no number.
    """
    rows = (line.replace(",", " ") for line in lines)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="loadtxt: input contained no data")
            return np.loadtxt(rows, usecols=columns, ndmin=2).reshape(-1, 3)
    except ValueError as error:
        raise SampleError(f"point cloud: {str(error).partition('; ')[0]}") from error
