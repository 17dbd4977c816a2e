"""What the conformance kit cannot derive: sketches as files, and sketches of any size. Imported by tests."""

from __future__ import annotations

from functools import partial

import hypothesis.strategies as st
import numpy as np
from hypothesis.extra.numpy import array_shapes, arrays

from kosmos import Media
from kosmos.testing import Conditions
from kosmos_sketch.pgm import as_pgm
from kosmos_sketch.samples import draw

SKETCH = draw(np.random.default_rng(0))[1]
ARRAYS = arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=70)).map(partial(Media, "sketch"))
FILES = st.binary(max_size=80).map(lambda pixels: Media("sketch", b"P5 8 8 255\n" + pixels))

CONDITIONS = Conditions(
    examples={"sketch": [Media("sketch", as_pgm(SKETCH))]},
    media={"sketch": ARRAYS | FILES},
    ranks_seconds=300,  # a shared machine with one core takes longer than the usual minute
)
