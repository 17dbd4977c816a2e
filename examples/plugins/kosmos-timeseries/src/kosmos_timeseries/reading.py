"""A window from bytes, a file or an array: its shape from the header where there is one, then its values."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kosmos import NPY_MAGIC, ConfigError, Media, SampleError, read_npy_header, read_npy_values
from kosmos_timeseries.table import parse_table

Shape = tuple[int, int]


@dataclass(frozen=True)
class Limits:
    """What is accepted at all; checked before memory is spent.

    Raises:
        ConfigError: a limit is below 1.
    """

    max_bytes: int
    max_values: int
    max_channels: int

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_values"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, got {getattr(self, name)}")

    def check_bytes(self, size: int) -> None:
        if size == 0:
            raise SampleError("time series holds no bytes")
        if size > self.max_bytes:
            raise SampleError(f"time series has {size} bytes, the limit is {self.max_bytes} (max_bytes)")

    def check_shape(self, shape: tuple[int, ...]) -> Shape:
        """(steps, channels) of an array of that shape; one dimension is one channel."""
        if len(shape) not in (1, 2) or 0 in shape:
            raise SampleError(f"time series of shape {shape}, expected [time] or [time, channels], none of them 0")
        steps, channels = (*shape, 1)[:2]
        if steps * channels > self.max_values:
            raise SampleError(f"time series has {steps * channels} values, the limit is {self.max_values} (max_values)")
        if channels > self.max_channels:
            raise SampleError(
                f"time series has {channels} channels, the encoder takes {self.max_channels} (its max_channels); "
                "an array is [time, channels]"
            )
        return steps, channels


def read_shape(media: Media, limits: Limits) -> Shape:
    """(steps, channels). An ``.npy`` file is read no further than its header.

    Raises:
        SampleError: unreadable, empty or over a limit.
    """
    if isinstance(media.source, np.ndarray):
        return limits.check_shape(media.source.shape)
    with _open(media.source, limits) as file:
        if _is_npy(file):
            return limits.check_shape(read_npy_header(file).shape)
        return limits.check_shape(_read_table(file, limits).shape)


def read_values(media: Media, limits: Limits) -> NDArray[np.float64]:
    """[steps, channels], NaN where a value is missing.

    Raises:
        SampleError: as ``read_shape``, or broken, or not of real numbers, or infinite somewhere.
    """
    values = _read_array(media.source, limits) if isinstance(media.source, np.ndarray) else _read_file(media, limits)
    if np.isinf(values).any():
        raise SampleError("time series holds infinite values; missing ones are NaN or empty")
    return values.reshape(limits.check_shape(values.shape))


def _read_array(array: NDArray[Any], limits: Limits) -> NDArray[np.float64]:
    limits.check_shape(array.shape)
    if array.dtype.kind not in "fiu":
        raise SampleError(f"time series of type {array.dtype}, expected real numbers")
    return array.astype(np.float64)


def _read_file(media: Media, limits: Limits) -> NDArray[np.float64]:
    assert isinstance(media.source, bytes | Path), type(media.source)
    with _open(media.source, limits) as file:
        if not _is_npy(file):
            return _read_table(file, limits)
        header = read_npy_header(file)
        limits.check_shape(header.shape)
        return read_npy_values(file, header).astype(np.float64)


def _read_table(file: BinaryIO, limits: Limits) -> NDArray[np.float64]:
    data = file.read(limits.max_bytes + 1)
    limits.check_bytes(len(data))  # the file may have grown
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SampleError(f"time series is neither .npy nor UTF-8 text: {error}") from error
    return parse_table(text, limits.max_values)


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
        raise SampleError(f"time series file {source}: {getattr(error, 'strerror', None) or error}") from error


def _is_npy(file: BinaryIO) -> bool:
    found = file.read(len(NPY_MAGIC)) == NPY_MAGIC
    file.seek(0)
    return found
