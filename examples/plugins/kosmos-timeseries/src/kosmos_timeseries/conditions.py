"""What the conformance kit cannot derive: windows as files, and windows of any shape and value. Imported by tests."""

from __future__ import annotations

import io
from functools import partial

import hypothesis.strategies as st
import numpy as np
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from kosmos import Media
from kosmos.testing import Conditions
from kosmos_timeseries.samples import draw


def as_csv(values: NDArray[np.float32]) -> bytes:
    """A table with named columns and the seconds in front; nothing where a value is missing."""
    head = ["time", *(f"sensor {number}" for number in range(values.shape[1]))]
    rows = [
        [f"{0.1 * step:.1f}", *("" if np.isnan(v) else repr(float(v)) for v in row)] for step, row in enumerate(values)
    ]
    return "\n".join(",".join(fields) for fields in [head, *rows]).encode()


def as_npy(values: NDArray[np.generic]) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


WINDOW = draw(np.random.default_rng(0))[0]
EXAMPLES = [Media("timeseries", content) for content in (as_csv(WINDOW), as_npy(WINDOW), as_npy(WINDOW.T.copy().T))]
SHAPES = array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=70)
VALUES = st.floats(width=32, allow_nan=True, allow_infinity=True)
ARRAYS = arrays(np.float32, SHAPES, elements=VALUES, fill=st.just(0.0)).map(partial(Media, "timeseries"))
TEXTS = st.text('0123456789.,;-+eE\t\n "naNif', max_size=80).map(lambda text: Media("timeseries", text.encode()))

CONDITIONS = Conditions(
    examples={"timeseries": EXAMPLES},
    media={"timeseries": ARRAYS | TEXTS},
    ranks_seconds=300,  # a shared machine with one core takes longer than the usual minute
)
