"""What names of components may be, and the nearest to a misspelt one. Imports nothing heavy: errors may want it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", re.IGNORECASE | re.ASCII)
_UNSPACED = re.compile(r"(\w[\w.-]*):(\S.*)", re.DOTALL)


def unfit(name: str) -> str:
    """Why no component can have a name, which users write in lists, before ``=`` and in places such as
    ``streams.NAME``; empty where one can."""
    return "" if _NAME.fullmatch(name) else "expected letters, digits and single - or _ between them, a letter first"


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that ``name`` most likely meant; case, ``-`` and ``_`` do not count. None where none is near.

    It is spelled nearly so, of the same letters, or is the shortest of those that begin so.
    """
    by_plain, wanted = {plain(candidate): candidate for candidate in candidates}, plain(name)
    matches = difflib.get_close_matches(wanted, by_plain, n=1, cutoff=0.68)  # two thirds: fused is not seed
    same = [known for known in by_plain if len(wanted) > 3 and sorted(known) == sorted(wanted)]
    begin = [known for known in by_plain if known.startswith(wanted)] if len(wanted) >= 3 else []
    found = matches or same or sorted(begin, key=len)
    return by_plain[found[0]] if found else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """``"did you mean patch_size?"``, or an empty string where no candidate is near."""
    match = nearest(name, candidates)
    return f"did you mean {match}?" if match else ""


def unspaced(key: str) -> str:
    """What to write for a key of YAML such as ``name:wsd``, of which the colon wants a space; else an empty string."""
    found = _UNSPACED.fullmatch(key)
    return f"YAML wants a space after the colon: {found[1]}: {found[2]}" if found else ""


def listed(names: Iterable[str], *, at_most: int = 12) -> str:
    """Names for a message: ``"a, b, c"`` or ``"none"``; cut after ``at_most`` with the number of the rest."""
    found = list(names)
    rest = f" and {len(found) - at_most} more" if len(found) > at_most else ""
    return ", ".join(found[:at_most]) + rest if found else "none"


def plain(name: str) -> str:
    """A name without what does not count: case, ``-`` and ``_``."""
    return name.lower().replace("-", "").replace("_", "")


def by_name(modalities: Any) -> dict[str, Any]:
    """``"image,audio"`` or a list of names as a mapping without settings; a mapping as it is."""
    if isinstance(modalities, Mapping):
        return dict(modalities)
    names = modalities.split(",") if isinstance(modalities, str) else modalities
    return {str(name).strip(): {} for name in names if str(name).strip()}
