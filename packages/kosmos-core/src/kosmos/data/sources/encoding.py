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
_TABLES, _IN_EXCEL = (".csv", ".tsv"), " (Excel: CSV UTF-8)"
_UNMARKED = {"UTF-32LE": (4, 0), "UTF-32BE": (4, 3), "UTF-16LE": (2, 0), "UTF-16BE": (2, 1)}
"""Without such a mark: the bytes of a character, and the one of them which is not zero in letters of Latin."""


def refuse_wide(head: bytes, path: Path) -> None:
    """Raises DataError, about ``path``, where its first bytes are those of UTF-16 or UTF-32."""
    if (found := _wide(head[:HEAD_BYTES])) is not None:
        raise DataError(f"{path}: {_is_wide(found)}{_IN_EXCEL if path.suffix.lower() in _TABLES else ''}")


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


def refuse_wide_text(text: str, head: bytes, before: str = "") -> None:
    """Raises SampleError where a text holds NUL since its file is UTF-16 or UTF-32: of ASCII alone that is UTF-8 too.

    Args:
        head: the beginning of the file.
        before: what the message begins with.
    """
    if "\0" in text and (found := _wide(head[:HEAD_BYTES])) is not None:
        raise SampleError(before + _is_wide(found))


def decoded(data: bytes, name: str) -> str:
    """The text of a whole file. Raises SampleError, which begins with ``name``, where it is not UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SampleError(f"{name}: {not_utf8(error.start, 'file', data)}") from error
    refuse_wide_text(text, data, f"{name}: ")
    return text


def _is_wide(name: str) -> str:
    return f"expected UTF-8, got {name}; {_convert(name)}, or save it as UTF-8"


def _convert(name: str) -> str:
    return f"convert it (iconv -f {name} -t UTF-8 OLD > NEW)"


def _wide(head: bytes) -> str | None:
    """UTF-16 or UTF-32 as ``iconv`` calls it, where bytes begin as its texts do; None where they do not."""
    if (marked := next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)) is not None:
        return marked
    for name, (nbytes, letter) in _UNMARKED.items():
        characters = [head[place : place + nbytes] for place in range(0, len(head) - nbytes + 1, nbytes)]
        latin = [one[letter] != 0 and one.count(0) == nbytes - 1 for one in characters]
        # Of what holds zeros alone too, such as a file that was never written to, nobody knows.
        if 2 * sum(latin) > len(characters) and all(map(any, characters)):
            return name
    return None
