"""Times as people write them for a scheduler or a trainer."""

from __future__ import annotations

import math
import re

EXPECTED = "expected a time such as 90m, 11h30m, 3d or 01:12:00:00 (days, hours to 23, minutes and seconds to 59)"
_WORDS = ("d|days?", "h|hours?", "m|min|minutes?", "s|sec|seconds?")
# Blanks belong to the part before them: parts that each could take them would be tried in all ways.
_PARTS = "".join(rf"(?:(\d+(?:\.\d+)?)\s*(?:{words})\s*)?" for words in _WORDS)
_UNITS = re.compile(rf"(?=\d){_PARTS}", re.ASCII | re.IGNORECASE)
_CLOCK = re.compile(r"(\d+):([01]?\d|2[0-3]):([0-5]?\d):([0-5]?\d)", re.ASCII)
_SECONDS = (86_400, 3_600, 60, 1)


def seconds_of(text: str) -> float:
    """Seconds of ``11h30m``, ``11 hours 30 min`` or, as Lightning writes it, ``DD:HH:MM:SS``; finite and above 0.

    Raises:
        ValueError: it is neither, or so large that no number holds it.
    """
    found = _UNITS.fullmatch(text.strip()) or _CLOCK.fullmatch(text.strip())
    seconds = sum(float(part) * unit for part, unit in zip(found.groups("0"), _SECONDS, strict=True)) if found else 0.0
    if not 0 < seconds < math.inf:
        raise ValueError(EXPECTED)
    return seconds
