"""Codes of rows of ``quarantine.jsonl`` that are about no bad sample, which are those of errors."""

from __future__ import annotations

import re

MEDIUM = "medium"
"""Of a medium that was left out of a document which is learned all the same."""
_PIECE = re.compile(r"( \((segments|tokens) \d+-\d+\))+$")
"""How origins of pieces of documents end, as ``kosmos.data.long_pages`` and ``kosmos.data.pieces`` write them."""


def document_of(origin: str) -> str:
    """The origin of a document, where this may be that of a piece of it."""
    return _PIECE.sub("", origin)
