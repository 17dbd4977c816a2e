"""JPEG files of the common kind from their bytes at once: Pillow's decoder, without its reading of headers in Python.

Of a picture of 160 pixels that reading, and its passing on of the file in pieces, take as long as decoding. Whatever
is out of the ordinary is left to it, so that it says what is wrong with a file, and decodes what is no plain JPEG.
"""

from __future__ import annotations

import re
from typing import IO, NamedTuple

from PIL import Image

from kosmos import SampleError

_HEAD_BYTES = 8192
"""Of a file, in which the frame is mostly found, behind a profile of colours too."""
_LEAST_BYTES = 10
"""From the marker of a frame to its number of colours."""
_START, _APP1, _APP2, _SCAN = b"\xff\xd8", 0xE1, 0xE2, 0xDA
_SKIPPED = frozenset((0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)))
"""Tables, comments and what applications have to say."""
_FRAMES = frozenset((0xC0, 0xC1, 0xC2))
"""Baseline, extended and progressive, coded by Huffman."""
_SCALES = (8, 4, 2)
MOST_SCANS = 100
"""Of a picture, as libtiff and GDAL have it. Progressive files have some ten; each that is added costs a pass over all
blocks of the picture, however few bytes it has: 60,000 in 8.5 MB kept a core busy for minutes."""
_MARKER = re.compile(rb"\xff+([^\x00\xff])")
_ALONE = frozenset((0x01, 0xD8, *range(0xD0, 0xD8)))
"""Markers with no length behind them."""
_END = 0xD9
_SEQUENTIAL = frozenset((0xC0, 0xC1, 0xC9))
"""Frames whose data may lie in one scan."""


class JpegFrame(NamedTuple):
    """Size of a picture, in pixels."""

    height: int
    width: int


def find_frame(file: IO[bytes]) -> JpegFrame | None:
    """The frame of a plain JPEG: three colours of eight bits, and nothing that may turn it.

    Args:
        file: at its begin, where it is left.

    Returns:
        None of any other file.
    """
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    if not head.startswith(_START):
        return None
    frame, place = None, len(_START)
    while place + _LEAST_BYTES <= len(head) and head[place] == 0xFF:
        marker, size = head[place + 1], int.from_bytes(head[place + 2 : place + 4])
        if marker == _SCAN:
            return frame
        if marker in _FRAMES and frame is None:
            frame = _frame(head[place + 4 : place + _LEAST_BYTES])
            if frame is None:
                return None
        elif marker not in _SKIPPED or _tells_more(marker, head, place + 4) or size < 2:
            return None
        place += 2 + size
    return None


def _frame(said: bytes) -> JpegFrame | None:
    """What a frame says of itself, where that is three colours of eight bits and a size."""
    frame = JpegFrame(int.from_bytes(said[1:3]), int.from_bytes(said[3:5]))
    return frame if (said[0], said[5]) == (8, 3) and all(frame) else None


def _tells_more(marker: int, head: bytes, begin: int) -> bool:
    """Whether it is EXIF or XMP, which may turn the picture, or the list of the several pictures of a file."""
    return marker == _APP1 or (marker == _APP2 and head.startswith(b"MPF\0", begin))


def refuse_many_scans(content: bytes) -> None:
    """Raises SampleError where a JPEG has more than ``MOST_SCANS`` scans. Its data are not decoded."""
    scans, colours, is_counted = 0, 0, False
    place = len(_START)
    while (found := _MARKER.search(content, place)) is not None and (marker := found[1][0]) != _END:
        place = found.end()
        if marker in _ALONE:
            continue
        if marker in _SEQUENTIAL:
            colours = content[place + 7] if place + 7 < len(content) else 0
        if marker == _SCAN:
            # Of most files that is all: one scan with all colours, behind which decoders look for no other. In most
            # others a fast search finds few that may be scans; profiles, and films behind a picture, may hold many.
            if not is_counted and ((colours and content[place + 2 : place + 3] == bytes((colours,))) or _few(content)):
                return
            is_counted, scans = True, scans + 1
            if scans > MOST_SCANS:
                raise SampleError(f"picture has over {MOST_SCANS} scans, each of which would be decoded; save it anew")
        place += max(2, int.from_bytes(content[place : place + 2]))


def _few(content: bytes) -> bool:
    return content.count(bytes((0xFF, _SCAN))) <= MOST_SCANS


def decode_frame(content: bytes, frame: JpegFrame, wanted: tuple[int, int]) -> Image.Image | None:
    """The picture as RGB, at a half, quarter or eighth where that leaves twice ``wanted`` (height, width) a side.

    Returns:
        None where it is broken, or cut short.
    """
    smaller = min(frame.width // (2 * wanted[1]), frame.height // (2 * wanted[0]))
    scale = next((scale for scale in _SCALES if smaller >= scale), 1)
    size = -(-frame.width // scale), -(-frame.height // scale)
    try:
        return Image.frombytes("RGB", size, content, "jpeg", "RGB", "", scale, 0)
    except (ValueError, OSError):
        return None
