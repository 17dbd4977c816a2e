"""Grey of more than 8 bits, and of floats, brought to 8. No torch here."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.TiffImagePlugin import BITSPERSAMPLE, PHOTOMETRIC_INTERPRETATION, SAMPLEFORMAT

from kosmos import ConfigError, SampleError

Range = tuple[float, float]
"""The values that become black (0) and white (255)."""
GRAY_RANGE = "modalities.image.processor.gray_range"
SIGNED = 2
"""In TIFF's SampleFormat."""
BAND = 1 << 20
"""Values that are changed at once, since numpy takes 8 bytes and more for each."""
DARK = 1 << 14
"""Of 16 bits: where all values are below, the picture is in the darkest quarter. Scanners have 10 to 14 bits."""


def check_range(given: Range | None) -> Range | None:
    """The range as two floats. Raises ConfigError where it is none."""
    if given is None:
        return None
    if len(given) != 2 or not all(map(math.isfinite, given)) or given[0] >= given[1]:
        raise ConfigError(
            f"gray_range {list(given)}: need [low, high], the value that becomes black and the larger one that becomes "
            "white, in the units of the files, such as [0, 4095] for 12 bits"
        )
    return float(given[0]), float(given[1])


def is_deep(picture: Image.Image) -> bool:
    """Whether its pixels are grey other than of 8 bits without sign. Known from the header."""
    return picture.mode.startswith("I") or picture.mode == "F" or _is_signed_8(picture)


def is_cut(file: IO[bytes]) -> bool:
    """Whether it is a PNG of grey and alpha of 16 bits each, of which Pillow keeps the upper 8 alone. Known from the
    header."""
    at = file.tell()
    file.seek(0)
    header = file.read(26)
    file.seek(at)
    return header.startswith(b"\x89PNG\r\n\x1a\n") and header[12:16] == b"IHDR" and header[24:] == b"\x10\x04"


def out_of_range() -> SampleError:
    """Of what ``is_cut``, where a range is stated."""
    return SampleError(
        f"a PNG of grey and alpha of 16 bits is read as 8, to which {GRAY_RANGE} cannot be applied; store it without "
        "alpha"
    )


def to_8_bits(picture: Image.Image, gray_range: Range | None) -> Image.Image:
    """Mode L, or LA where a value is stated to be transparent, of what ``is_deep``.

    Args:
        gray_range: None scales 16 bits, and the 12 that a TIFF states, over all that they can hold, where Pillow's
            ``convert`` would clip at 255.

    Raises:
        SampleError: without a range, for what has no agreed one; with it, values that are no numbers.
    """
    values = _values(picture)
    grey = _over_all_bits(picture, values) if gray_range is None else scaled(values, gray_range)
    if _is_turned(picture):
        grey = 255 - grey
    clear = picture.info.get("transparency")
    if not isinstance(clear, int):
        return Image.fromarray(grey)
    alpha = np.where(values == clear, 0, 255).astype(np.uint8)
    return Image.merge("LA", (Image.fromarray(grey), Image.fromarray(alpha)))


def scaled(values: NDArray[Any], gray_range: Range) -> NDArray[np.uint8]:
    """Values from low to high as 0 to 255, others clipped.

    Raises:
        SampleError: some are no numbers.
    """
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise SampleError("grey values that are no numbers (NaN); write the value that stands for them into the file")
    if values.dtype.itemsize == 2 and values.dtype.kind == "u":
        return _in_bands(partial(np.take, _table(gray_range)), values)
    return _in_bands(lambda band: _scaled(band, gray_range), values)


def _in_bands(change: Callable[[NDArray[Any]], NDArray[np.uint8]], values: NDArray[Any]) -> NDArray[np.uint8]:
    flat, found = values.reshape(-1), np.empty(values.size, np.uint8)
    for begin in range(0, len(flat), BAND):
        found[begin : begin + BAND] = change(flat[begin : begin + BAND])
    return found.reshape(values.shape)


@cache
def _table(gray_range: Range) -> NDArray[np.uint8]:
    """Of all values of 16 bits without a sign."""
    return _scaled(np.arange(1 << 16), gray_range)


def _scaled(values: NDArray[Any], gray_range: Range) -> NDArray[np.uint8]:
    low, high = gray_range
    share = np.clip((values.astype(np.float64) - low) / (high - low), 0, 1)
    return np.floor(share * 255 + 0.5).astype(np.uint8)


def _values(picture: Image.Image) -> NDArray[Any]:
    """As the file has them: Pillow holds 8 bits with a sign, and 32 without, as the other kind."""
    values = np.asarray(picture)
    if _is_signed_8(picture):
        return values.view(np.int8)
    return values.view(np.uint32) if _stated(picture, BITSPERSAMPLE) == 32 and _is_unsigned(picture) else values


def _is_turned(picture: Image.Image) -> bool:
    """Whether white is zero in it, which Pillow turns over for 8 bits alone."""
    return getattr(picture, "tag_v2", {}).get(PHOTOMETRIC_INTERPRETATION) == 0


def _is_unsigned(picture: Image.Image) -> bool:
    return picture.mode == "I" and _stated(picture, SAMPLEFORMAT) in (None, 1)


def _is_signed_8(picture: Image.Image) -> bool:
    return picture.mode == "L" and _stated(picture, SAMPLEFORMAT) == SIGNED


def _stated(picture: Image.Image, tag: int) -> int | None:
    """What a TIFF states of its only channel."""
    found = getattr(picture, "tag_v2", {}).get(tag)
    return int(found[0]) if isinstance(found, tuple) and found else None


def without_range(kind: str) -> SampleError:
    return SampleError(
        f"pixels of {kind} have no agreed range; say which values are black and white in {GRAY_RANGE}, or store the "
        "picture with 8 or 16 bits"
    )


@cache
def _all_bits(bits: int) -> NDArray[np.uint8]:
    most = (1 << bits) - 1
    return ((np.arange(most + 1) * 255 + most // 2) // most).astype(np.uint8)


def _over_all_bits(picture: Image.Image, values: NDArray[Any]) -> NDArray[np.uint8]:
    if picture.mode == "F":
        raise without_range("mode F, floats,")
    if picture.mode == "L":
        raise without_range("8 bits with a sign")
    if _stated(picture, BITSPERSAMPLE) == 32:  # 0 to 255 as often as 0 to 65,535
        raise without_range("32 bits")
    bits = 12 if _stated(picture, BITSPERSAMPLE) == 12 else 16
    if values.min() < 0 or values.max() >= 1 << bits:
        raise SampleError(
            f"grey values from {values.min()} to {values.max()}; need 8 or 16 bits without sign, or {GRAY_RANGE}: the "
            "values that are black and white"
        )
    return _in_bands(partial(np.take, _all_bits(bits)), values)


def dark(picture: Image.Image) -> str:
    """What there is to say of 16 bits of which only the lowest are in use, read over all of them; else empty."""
    if not picture.mode.startswith("I") or _stated(picture, BITSPERSAMPLE) not in (None, 16):
        return ""
    values = np.asarray(picture)
    least, most = int(values.min()), int(values.max())
    if least < 0 or most >= DARK:  # what has a sign is refused
        return ""
    shade = "white" if _is_turned(picture) else "black"
    return (
        f"16 bits whose largest value is {most:,} of 65,535 are nearly {shade} ({most * 255 / 65535:.0f} of 255); set "
        f"{GRAY_RANGE}, such as [0, {(1 << max(8, most.bit_length())) - 1}]"
    )


def dark_of_cut(picture: Image.Image) -> str:
    """As ``dark``, of what ``is_cut``."""
    most = int(np.asarray(picture.getchannel(0)).max())
    if most >= DARK >> 8:
        return ""
    return (
        f"16 bits of grey, beside alpha, whose largest value is below {(most + 1) << 8:,} of 65,535 are nearly black "
        f"({most} of 255); store the picture without alpha and set {GRAY_RANGE}"
    )
