"""Objects and lists in rows: read from texts of JSON into which a nested path leads."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

_BEGINS = ("{", "[")


@lru_cache(maxsize=2)  # several paths lead into the text of one row, and texts may be large
def read_json_text(text: str) -> tuple[Any, str]:
    """What a text says that is JSON of an object or a list, and why it is none: one of both is nothing.

    The value is shared by all who ask for it: leave it as it is.
    """
    if not text.lstrip().startswith(_BEGINS):
        return None, "is text, and no JSON of an object or a list"
    try:
        return json.loads(text), ""
    except RecursionError:
        return None, "is text that is no JSON (nested too deeply)"
    except ValueError as error:
        return None, f"is text that is no JSON ({error})"
