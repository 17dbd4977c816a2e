"""What is said of text that is not UTF-8: what it is instead, as far as its bytes tell, and how to convert it."""

from __future__ import annotations

import codecs
from pathlib import Path

from kosmos.errors import DataError, SampleError

HEAD_BYTES = 64
"""Of a file, that tell UTF-16 and UTF-32 from UTF-8."""
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before that of UTF-16, which it begins with
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def refuse_wide(head: bytes, path: Path) -> None:
    """Raises DataError, about ``path``, where its first bytes are those of UTF-16 or UTF-32."""
    if (found := _wide(head[:HEAD_BYTES])) is not None:
        raise DataError(f"{path}: {_is_wide(found)}")


def not_utf8(byte: int, of: str, head: bytes = b"") -> str:
    """What is wrong with a text, and what to do.

    Args:
        byte: the first that is not UTF-8.
        of: what it is counted from the beginning of, such as ``row``.
        head: the first bytes of the file, where they may be UTF-16.
    """
    if (found := _wide(head[:HEAD_BYTES])) is not None:
        return _is_wide(found)
    return f"not UTF-8 at byte {byte} of the {of}; if all of the file is Latin-1, {_convert('CP1252')}"


def refuse_wide_text(text: str, head: bytes) -> None:
    """Raises SampleError where a text holds NUL since its file, of which ``head`` is the beginning, is UTF-16.

    What holds letters of ASCII alone is UTF-8 as well.
    """
    if "\0" in text and (found := _wide(head[:HEAD_BYTES])) is not None:
        raise SampleError(_is_wide(found))


def _is_wide(name: str) -> str:
    return f"expected UTF-8, got {name}; {_convert(name)}, or save it as UTF-8 (Excel: CSV UTF-8)"


def _convert(name: str) -> str:
    return f"convert it (iconv -f {name} -t UTF-8 OLD > NEW)"


def _wide(head: bytes) -> str | None:
    """UTF-16 or UTF-32 as ``iconv`` calls it, where bytes begin as its texts do; None where they do not."""
    if (marked := next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)) is not None:
        return marked
    characters = [head[place : place + 2] for place in range(0, len(head) - 1, 2)]
    if not characters or head.count(0) > len(characters):
        return None  # of what has more zeros than this, such as a file that was never written to, nobody knows
    for name, half in {"UTF-16LE": 1, "UTF-16BE": 0}.items():  # as letters of Latin have a zero in this half alone
        zeros = [pair[half] == 0 and pair[1 - half] != 0 for pair in characters]
        if 2 * sum(zeros) > len(characters):
            return name
    return None
