"""Bytes at the end of a text that begin a character of UTF-8 and do not end it, as where a limit has cut it off."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

LONGEST = 3
"""A character has up to four bytes."""
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = sorted({*range(256)} - {*_PLAIN})
_BYTE_OF = {chr(byte): byte for byte in _PLAIN} | {chr(256 + place): byte for place, byte in enumerate(_OTHERS)}
"""Letters for bytes of byte-level BPE: those that can be seen are themselves, the others follow 255 (GPT-2)."""


def whole_text(data: bytes) -> str:
    """Its characters, U+FFFD for broken ones, without the beginning of one at the end."""
    return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data)


def unfinished(data: bytes) -> int:
    """How many bytes at the end begin a character that does not end there."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    decoder.decode(data)
    return len(decoder.getstate()[0])


def of_letters(tokens: Iterable[str]) -> bytes:
    """The last bytes of tokens of byte-level BPE, given from the last one on."""
    data = b""
    for token in tokens:
        if len(data) >= LONGEST or not all(letter in _BYTE_OF for letter in token):
            break
        data = bytes(_BYTE_OF[letter] for letter in token) + data
    return data


def of_bytes(tokens: Iterable[str]) -> bytes:
    """The last bytes of tokens that are a byte each (``<0xE2>``), likewise; none where the last one is of text."""
    data = b""
    for token in tokens:
        if len(data) == LONGEST or (byte := _BYTE.fullmatch(token)) is None:
            break
        data = bytes([int(byte[1], 16)]) + data
    return data
