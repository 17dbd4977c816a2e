"""What the conformance kit cannot derive: clouds as files, and clouds of any size and value. Imported by tests."""

from __future__ import annotations

import io
from functools import partial

import hypothesis.strategies as st
import numpy as np
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from kosmos import Media
from kosmos.testing import Conditions
from kosmos_pointcloud.samples import draw


def as_xyz(points: NDArray[np.float32]) -> bytes:
    return "".join(f"{x!r} {y!r} {z!r}\n" for x, y, z in points.tolist()).encode()


def as_npy(points: NDArray[np.generic]) -> bytes:
    file = io.BytesIO()
    np.save(file, points, allow_pickle=False)
    return file.getvalue()


def as_ply(points: NDArray[np.float32], form: str = "binary_little_endian") -> bytes:
    """With a camera in front, a colour beside each point, and a face behind them."""
    head = (
        f"ply\nformat {form} 1.0\ncomment made by a test\nelement camera 1\nproperty double focus\n"
        f"element vertex {len(points)}\nproperty uchar red\n"
        + "".join(f"property float {axis}\n" for axis in "xyz")
        + "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
    )
    if form == "ascii":
        rows = "".join(f"255 {x!r} {y!r} {z!r}\n" for x, y, z in points.tolist())
        return f"{head}1.5\n{rows}3 0 1 2\n".encode()
    order = "<" if form == "binary_little_endian" else ">"
    table = np.zeros(len(points), [("red", "u1"), *((axis, f"{order}f4") for axis in "xyz")])
    for column, axis in enumerate("xyz"):
        table[axis] = points[:, column]
    face = b"\3" + np.arange(3, dtype=f"{order}i4").tobytes()
    return head.encode() + np.array(1.5, f"{order}f8").tobytes() + table.tobytes() + face


CLOUD = draw(np.random.default_rng(0))[0]
FORMS = (as_xyz(CLOUD), as_npy(CLOUD), as_ply(CLOUD), as_ply(CLOUD, "ascii"), as_ply(CLOUD, "binary_big_endian"))
VALUES = st.floats(width=32, allow_nan=True, allow_infinity=True)
SHAPES = st.tuples(st.integers(1, 90), st.integers(3, 5))
ARRAYS = arrays(np.float32, SHAPES, elements=VALUES, fill=st.just(0.0)).map(partial(Media, "pointcloud"))
TEXTS = st.text("0123456789.,-+eE# \n", max_size=80).map(lambda text: Media("pointcloud", text.encode()))

CONDITIONS = Conditions(
    examples={"pointcloud": [Media("pointcloud", content) for content in FORMS]},
    media={"pointcloud": ARRAYS | TEXTS},
    ranks_seconds=300,  # a shared machine with one core takes longer than the usual minute
)
