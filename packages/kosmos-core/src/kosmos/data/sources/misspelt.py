"""Names of files that are not there: what may have been meant, for the end of a message."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path, PurePosixPath

MOST_FILES = 20_000
"""Of a folder whose names are compared."""


def meant(root: Path, name: str) -> str:
    """What may be meant by the name of a file that is not below ``root``, as ``"; there is 16.JPG"``; else nothing.

    Args:
        root: resolved, so that what is found below it by its name is no link out of it.
    """
    if "\\" in name and _spelled(root, name.replace("\\", "/")) is not None:
        return "; write / in place of \\ between folders"
    if name != (bare := name.strip()) and _spelled(root, bare) is not None:
        return "; there is one without the space around its name, and a space in front of a value or behind it counts"
    found = _spelled(root, name)
    return f"; there is {found}, and capital letters count" if found is not None else ""


def _spelled(root: Path, name: str) -> str | None:
    """The path as it is spelled below ``root``, where letters may be small or capital; None where nothing is there."""
    found = PurePosixPath()
    parts = PurePosixPath(name).parts
    if ".." in parts or not parts:
        return None
    for part in parts:
        if not os.path.lexists(root / found / part):
            other = _names(root / found).get(part.casefold())
            if other is None or not os.path.lexists(root / found / other):  # it may be gone since
                return None
            part = other
        found /= part
        if os.path.islink(root / found) and not (root / found).resolve().is_relative_to(root):
            return None
    return str(found)


@lru_cache(maxsize=8)
def _names(folder: Path) -> dict[str, str]:
    """What is in a folder, by its name in small letters; nothing of one that cannot be read or holds very much."""
    found: dict[str, str] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.setdefault(entry.name.casefold(), entry.name)
                if len(found) > MOST_FILES:
                    return {}
    except OSError:
        return {}
    return found
