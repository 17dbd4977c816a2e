"""Text of data, run files and errors as a terminal may have it: what would steer it is shown as an escape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

_STEERING = [
    *(code for code in range(0x20) if chr(code) not in "\n\t"),
    *range(0x7F, 0xA0),  # with the C1 codes, of which 0x9B begins a sequence as ESC [ does
    *(0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),  # the order in which letters are shown
]
_ENDS = [0x09, 0x0A, 0x2028, 0x2029]  # of lines, and what moves on in one


def _escapes(codes: Iterable[int]) -> dict[int, str]:
    return {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in codes}


_ESCAPES, _IN_A_LINE = _escapes(_STEERING), _escapes([*_STEERING, *_ENDS])


def visible(text: str) -> str:
    """The text, whose control characters other than line feeds and tabs, and marks of direction, are escapes.

    Whoever wrote a caption, a name in an archive or a key of a run file could else move the cursor, and so hide lines
    of a command or write others in its name. JSON is not for it: that has escapes of its own.
    """
    return text.translate(_ESCAPES)


def in_a_line(text: str) -> str:
    """The text as ``visible`` has it, of one line: the name of a file may hold line feeds and tabs, too."""
    return text.translate(_IN_A_LINE)


def say(text: str = "", *, file: TextIO | None = None, flush: bool = False) -> None:
    """Print ``text`` as ``visible`` has it."""
    print(visible(text), file=file, flush=flush)
