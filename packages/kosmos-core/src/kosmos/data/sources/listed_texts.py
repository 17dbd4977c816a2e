"""Lists that stand in a table as a text, in JSON or as Python shows them."""

from __future__ import annotations

import ast
import json
from contextlib import suppress
from typing import Any

MOST_CHARS = 64 * 1024
"""Of a text that is such a list."""


def listed_text(value: Any) -> Any:
    """The list of texts and numbers, or of objects of such in JSON, that a text says; any other value as it is."""
    if not isinstance(value, str) or len(value) > MOST_CHARS or not (bare := value.strip()).startswith(("[", "{")):
        return value
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            found = read(bare)
            if isinstance(found, dict) or (isinstance(found, list) and all(isinstance(one, _PLAIN) for one in found)):
                return found
    return value


_PLAIN = (str, int, float, dict, type(None))
