"""The user's folder of caches: what is made of data once, and may be deleted at any time."""

from __future__ import annotations

import os
from pathlib import Path

LEFT_BEHIND_S = 86_400.0
"""Age from which on a file that was being written belongs to a process that was killed."""


def cache_folder(name: str) -> Path | None:
    """``name`` below ``$KOSMOS_CACHE``, else below ``kosmos`` in the user's folder of caches; it may have to be made.
    None is nowhere, as where ``$KOSMOS_CACHE`` is empty."""
    given = os.environ.get("KOSMOS_CACHE")
    if given is not None:
        return Path(given) / name if given else None
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kosmos" / name
    except RuntimeError:  # there is no home
        return None
    return folder if folder.is_absolute() else None
