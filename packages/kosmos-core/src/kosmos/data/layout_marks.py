"""Whether the texts of a processor's layouts are what they seem to be: a mark that is misspelt would be learned as
letters, and nobody would be told."""

from __future__ import annotations

import re
from functools import lru_cache

from kosmos.errors import PluginError
from kosmos.names import did_you_mean, listed

_LIKE_A_MARK = re.compile(r"</?[^\W\d][^\s<>]*>")
"""``<name>`` and ``</name>``; what begins with a digit is a time."""


@lru_cache(maxsize=4096)
def check_text(modality: str, text: str, marks: frozenset[str]) -> None:
    """Raises PluginError where a text of a layout looks like a mark and is none of the modality's.

    Args:
        text: a part of the layout that is no mark.
        marks: those of the modality.
    """
    if _LIKE_A_MARK.fullmatch(text.strip()):
        near = did_you_mean(text.strip(), marks)
        raise PluginError(
            f"modality {modality}: its processor put {text!r} into a layout, which is none of its marks "
            f"({listed(sorted(marks)) or 'there are none'}); "
            f"{near or 'add it to the marks of its ModalitySpec, or write a text that does not look like a mark'}"
        )
