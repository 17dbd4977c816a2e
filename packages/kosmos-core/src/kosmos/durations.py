"""Times as people write them for a scheduler or a trainer."""

from __future__ import annotations

import re

EXPECTED = "expected a time such as 90m, 11h30m, 3d or 01:12:00:00 (days, hours, minutes, seconds)"
_NUMBER = r"\d+(?:\.\d+)?"
_UNITS = re.compile(
    rf"(?=\d)(?:({_NUMBER})d)?\s*(?:({_NUMBER})h)?\s*(?:({_NUMBER})m)?\s*(?:({_NUMBER})s)?", re.ASCII | re.IGNORECASE
)
_CLOCK = re.compile(r"(\d+):(\d\d?):(\d\d?):(\d\d?)", re.ASCII)
_SECONDS = (86_400, 3_600, 60, 1)


def seconds_of(text: str) -> float:
    """Seconds of ``11h30m`` or, as Lightning writes it, ``DD:HH:MM:SS``; above 0.

    Raises:
        ValueError: it is neither.
    """
    found = _UNITS.fullmatch(text.strip()) or _CLOCK.fullmatch(text.strip())
    seconds = sum(float(part) * unit for part, unit in zip(found.groups("0"), _SECONDS, strict=True)) if found else 0.0
    if not seconds:
        raise ValueError(EXPECTED)
    return seconds
