"""Lists that stand in a table as a text, in JSON or as Python shows them."""

from __future__ import annotations

import ast
import io
import json
import tokenize
from contextlib import suppress
from typing import Any

MOST_CHARS = 64 * 1024
"""Of a text that is such a list."""


def listed_text(value: Any) -> Any:
    """The list of texts and numbers, or of objects of such in JSON, that a text says; any other value as it is."""
    if not isinstance(value, str) or len(value) > MOST_CHARS or not (bare := value.strip()).startswith(("[", "{")):
        return value
    for read in (_as_json, _as_python):
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            found = read(bare)
            if isinstance(found, dict) or (isinstance(found, list) and all(isinstance(one, _PLAIN) for one in found)):
                return found
    return value


_PLAIN = (str, int, float, dict, type(None))


def _as_json(text: str) -> Any:
    """Numbers with a fraction stay as they are written."""
    return json.loads(text, parse_float=str)


def _as_python(text: str) -> Any:
    """Raises ValueError where texts stand beside each other without a comma, which Python makes one."""
    found = ast.literal_eval(text)
    texts = sum(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in ast.walk(ast.parse(text)))
    if texts != sum(one.type == tokenize.STRING for one in tokenize.generate_tokens(io.StringIO(text).readline)):
        raise ValueError("texts without a comma between them")
    return found
