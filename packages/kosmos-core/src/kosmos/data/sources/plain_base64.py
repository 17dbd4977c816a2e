"""Base64 that stands where a path is expected, as the messages that are sent to Ollama have their media."""

from __future__ import annotations

import base64
import re
from typing import Final

_SHORTEST: Final = 64
"""Letters of the smallest media."""
_LONG: Final = 1024
"""Letters of a text that is no path, whatever it begins with."""
_LOOKED_AT: Final = 4096
_LETTERS = re.compile(r"[A-Za-z0-9+/_\s-]+={0,2}\s*")
_MIXED = re.compile(r"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9])", re.DOTALL)
_BEGINS: Final = (
    *(b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"II*\0", b"MM\0*", b"%PDF"),
    *(b"OggS", b"ID3", b"fLaC", b"\x1aE\xdf\xa3"),
)
"""Bytes by which formats of media are known."""
_BOX: Final = b"ftyp"
"""The same, from byte 4 on."""


def is_base64(text: str) -> bool:
    """Whether a text that is the name of no file is a medium in base64: it has no other letters, and begins as media
    do or is longer than paths are."""
    begin = text[:_LOOKED_AT]
    if len(text) < _SHORTEST or _LETTERS.fullmatch(begin) is None:
        return False
    if len(text) > _LONG and _MIXED.match(begin):
        return True
    try:
        decoded = base64.b64decode(begin[:16])
    except ValueError:
        return False
    return decoded.startswith(_BEGINS) or decoded[4:8] == _BOX


def begins_as_medium(data: bytes) -> bool:
    """Whether bytes begin as those of a known format of media do."""
    return data.startswith((*_BEGINS, *_SHORT)) or data[4:8] == _BOX


_SHORT: Final = (b"BM", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\0\0\1\xba", b"\0\0\1\xb3", b"FORM", b"8BPS")
"""Those that tell only where media are expected."""
