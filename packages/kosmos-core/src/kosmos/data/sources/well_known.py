"""Columns in which others have media (``datasets``, ms-swift, LLaMA-Factory, LLaVA), whoever may be able to read them.

Without this, a row with a medium that no plugin here can read would pass for a row of plain text, and what its text
says in place of the medium would be learned as letters. How media are read, nothing here knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kosmos.data.document import FileSpan

WELL_KNOWN: Final = {f"{name}{ending}": name for name in ("image", "audio", "video") for ending in ("", "s")}
"""Column to what its media are called."""
FOR_OTHERS: Final = "image"
"""Its placeholder stands in LLaVA-Video's texts for the film."""
_SUFFIXES = frozenset(
    ".avif .bmp .gif .heic .jpeg .jpg .png .svg .tif .tiff .webp "
    ".aac .aif .aiff .amr .au .flac .m4a .mp3 .oga .ogg .opus .wav .wma "
    ".3gp .avi .flv .m4v .mkv .mov .mp4 .mpeg .mpg .ogv .ts .webm .wmv".split()
)
"""Of files that others name there. They tell a name from a title; what can be read is for plugins to say."""
_ALSO_SITES = frozenset((".au", ".ts"))
"""Ends of the names of sites and programs too, with which a sentence may end."""
_ADDRESS = re.compile(r"data:[^,\s]*,|[a-z][a-z0-9+.-]+://\S+\Z", re.IGNORECASE)
_LIST = "[]{}\"' "
"""What is around the names of files in a list or an object that a table of texts writes out."""
_HOLDS = ("bytes", "path", "url", "data", "array")
"""Keys of an object that is a medium."""


def is_medium(value: Any) -> bool:
    """Whether what stands in such a column is a medium, without a plugin that could tell.

    Bytes are, a text that ends as names of such files do or is an address, an object with one of ``_HOLDS`` or with a
    medium under one of ``WELL_KNOWN``, and a list with any of these. A title, a description, a number and a yes or no
    are none.
    """
    if isinstance(value, str):
        value = value.strip(_LIST) if value.startswith(("[", "{")) else value
        suffix = value[value.rfind(".") :].rstrip().lower() if "." in value else ""
        named = suffix in _SUFFIXES and "\n" not in value and not (suffix in _ALSO_SITES and " " in value)
        return named or _ADDRESS.match(value) is not None
    if isinstance(value, list | tuple):
        return any(map(is_medium, value))
    if isinstance(value, Mapping):
        return any(value.get(key) is not None for key in _HOLDS) or any(is_medium(value.get(key)) for key in WELL_KNOWN)
    return isinstance(value, bytes | FileSpan)


def differ(several: Any, single: Any) -> bool:
    """Whether a column of one medium holds another than that of several; what is no medium, such as the number of a
    row, is none."""
    others, own = (value if isinstance(value, list | tuple) else [value] for value in (several, single))
    return any(is_medium(value) and value not in others for value in own)
