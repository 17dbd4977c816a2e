"""The user's folder of caches: what is made of data once, and may be deleted at any time."""

from __future__ import annotations

import os
import tempfile
from functools import lru_cache
from pathlib import Path

LEFT_BEHIND_S = 86_400.0
"""Age from which on a file that was being written belongs to a process that was killed."""


def cache_folder(name: str) -> Path | None:
    """``name`` below ``$KOSMOS_CACHE``, else below ``kosmos`` in the user's folder of caches; it may have to be made.

    Below a folder of somebody else, as all users of a machine may have, ``name`` with the user's number behind it:
    what another user has written is not trusted. None is nowhere; ``why_nowhere`` tells why.
    """
    top = _top()
    if top is None:
        return None
    own, numbered = top / name, top / f"{name}-{os.geteuid()}"
    if os.path.lexists(own):
        if _is_own(own):
            return own
    elif _owner(top.resolve()) in (None, os.geteuid()):
        return own
    return numbered if not os.path.lexists(numbered) or _is_own(numbered) else None


def why_nowhere(name: str) -> str:
    """Why ``cache_folder`` knows no folder, and what to do."""
    given = os.environ.get("KOSMOS_CACHE")
    if given == "":
        return "$KOSMOS_CACHE is empty; name a folder there"
    if (top := _top()) is None:
        return "there is no home, and no absolute $XDG_CACHE_HOME; name a folder in $KOSMOS_CACHE"
    return f"{top / f'{name}-{os.geteuid()}'} is of another user; name a folder of your own in $KOSMOS_CACHE"


def _top() -> Path | None:
    given = os.environ.get("KOSMOS_CACHE")
    if given is not None:
        return Path(given) if given else None
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kosmos"
    except RuntimeError:  # there is no home
        return None
    return folder if folder.is_absolute() else None


def _owner(folder: Path) -> int | None:
    """None where it is not there, or cannot be looked at."""
    try:
        return folder.lstat().st_uid
    except OSError:
        return None


def _is_own(folder: Path) -> bool:
    return _owner(folder) in (None, os.geteuid()) or _is_ours_by_another_number(folder)


@lru_cache
def _is_ours_by_another_number(folder: Path) -> bool:
    """Whether the disk calls this user as it calls the folder's owner: some know one user alone, and many have root of
    another machine as nobody."""
    try:
        with tempfile.TemporaryFile(dir=folder) as new:
            return os.fstat(new.fileno()).st_uid == folder.lstat().st_uid
    except OSError:
        return False
