"""What Pillow does not say of TIFF files: that one is cut short, and what libtiff prints of one. No torch here."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from typing import IO

from PIL import _imaging

_ORDERS = {b"II": "little", b"MM": "big"}
_OFFSETS = {42: (4, 4), 43: (8, 8)}
"""Of a TIFF and of a BigTIFF: where the place of the directory stands, and in how many bytes."""
_DAMAGED = "decoder error -2"


def cut_short(file: IO[bytes]) -> str:
    """Why a file that cannot be recognised is a TIFF that is cut short; empty where it is none.

    Programs write the directory, by which a TIFF is recognised, behind the pixels, and its place in front.
    """
    file.seek(0)
    head, size = file.read(16), file.seek(0, os.SEEK_END)
    order = _ORDERS.get(head[:2])
    if order is None or len(head) < 8:
        return ""
    begin, count = _OFFSETS.get(int.from_bytes(head[2:4], order), (0, 0))  # type: ignore[arg-type]
    place = int.from_bytes(head[begin : begin + count], order)  # type: ignore[arg-type]
    if not count or place + 2 <= size:
        return ""
    return f"TIFF file is cut short: it has {size:,} bytes, and its directory should be at byte {place:,}"


def in_words(error: Exception) -> str:
    """What is said of an error of decoding."""
    said = str(error)
    return f"its pixels are damaged or cut short ({said})" if said == _DAMAGED else said or type(error).__name__


@cache
def quiet_libtiff() -> None:
    """Let libtiff print nothing: it names no file, and what is wrong comes back as an error of Pillow's, too.

    Pillow has no call for it. Its libtiff is loaded with it, and no other program's; where its functions cannot be
    had, as in a build that hides them, it goes on printing.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(_imaging.__file__)
        for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
            setter = getattr(library, name)
            setter.restype, setter.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
            setter(None)
