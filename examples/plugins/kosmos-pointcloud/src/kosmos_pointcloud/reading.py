"""Points from bytes, a file or an array: their number from the header where there is one, then the points."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from kosmos import NPY_MAGIC, ConfigError, Media, SampleError, read_npy_header, read_npy_values
from kosmos_pointcloud import ply
from kosmos_pointcloud.text import parse_rows


@dataclass(frozen=True)
class Limits:
    """What is accepted at all; checked before memory is spent.

    Raises:
        ConfigError: a limit is below 1.
    """

    max_bytes: int
    max_points: int

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_points"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, got {getattr(self, name)}")

    def check_bytes(self, size: int) -> None:
        if size == 0:
            raise SampleError("point cloud holds no bytes")
        if size > self.max_bytes:
            raise SampleError(f"point cloud has {size} bytes, the limit is {self.max_bytes} (max_bytes)")

    def check_shape(self, shape: tuple[int, ...]) -> int:
        """Number of points of an array of that shape."""
        if len(shape) != 2 or shape[0] < 1 or shape[1] < 3:
            raise SampleError(f"point cloud of shape {shape}, expected [points, 3 or more columns] with a point")
        if shape[0] > self.max_points:
            raise SampleError(f"point cloud has {shape[0]} points, the limit is {self.max_points} (max_points)")
        return shape[0]


def count_points(media: Media, limits: Limits) -> int:
    """How many points there are. ``.npy`` and ``.ply`` files are read no further than their header.

    Raises:
        SampleError: unreadable, empty or over a limit.
    """
    if isinstance(media.source, np.ndarray):
        return limits.check_shape(media.source.shape)
    with _open(media.source, limits) as file:
        kind = _kind(file)
        if kind == "npy":
            return limits.check_shape(read_npy_header(file).shape)
        if kind == "ply":
            return limits.check_shape((ply.read_header(file).vertex.count, 3))
        return limits.check_shape(_read_text(file, limits).shape)


def read_points(media: Media, limits: Limits) -> NDArray[np.float64]:
    """[points, 3], finite.

    Raises:
        SampleError: as ``count_points``, or broken, or not of finite real numbers.
    """
    points = _read_array(media.source, limits) if isinstance(media.source, np.ndarray) else _read_file(media, limits)
    points = points[:, :3].astype(np.float64)
    if not np.isfinite(points).all():
        bad = int((~np.isfinite(points)).any(axis=1).sum())
        raise SampleError(f"point cloud: {bad} of {len(points)} points are not finite; leave them out of the file")
    return points


def _read_array(array: NDArray[Any], limits: Limits) -> NDArray[Any]:
    limits.check_shape(array.shape)
    if array.dtype.kind not in "fiu":
        raise SampleError(f"point cloud of type {array.dtype}, expected real numbers")
    return array


def _read_file(media: Media, limits: Limits) -> NDArray[Any]:
    assert isinstance(media.source, bytes | Path), type(media.source)
    with _open(media.source, limits) as file:
        kind = _kind(file)
        if kind == "npy":
            values = read_npy_header(file)
            limits.check_shape(values.shape)
            return read_npy_values(file, values)
        if kind == "ply":
            header = ply.read_header(file)
            limits.check_shape((header.vertex.count, 3))
            return ply.read_points(file, header)
        points = _read_text(file, limits)
        limits.check_shape(points.shape)
        return points


def _read_text(file: BinaryIO, limits: Limits) -> NDArray[np.float64]:
    data = file.read(limits.max_bytes + 1)
    limits.check_bytes(len(data))  # the file may have grown
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SampleError(f"point cloud is neither .npy, .ply nor UTF-8 text: {error}") from error
    return parse_rows(text.split("\n"))


@contextmanager
def _open(source: bytes | Path, limits: Limits) -> Iterator[BinaryIO]:
    if isinstance(source, bytes):
        limits.check_bytes(len(source))
        yield io.BytesIO(source)
        return
    try:
        limits.check_bytes(source.stat().st_size)
        with source.open("rb") as file:
            yield file
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise SampleError(f"point cloud file {source}: {getattr(error, 'strerror', None) or error}") from error


def _kind(file: BinaryIO) -> Literal["npy", "ply", "text"]:
    """By content: a suffix may lie, and bytes have none."""
    start = file.read(len(NPY_MAGIC))
    file.seek(0)
    if start == NPY_MAGIC:
        return "npy"
    return "ply" if start[:3] == ply.MAGIC and start[3:4] in (b"\n", b"\r") else "text"
