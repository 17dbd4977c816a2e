"""Two paths change places in one step, where the system and the disk can do that."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

AT_FDCWD = -100
RENAME_EXCHANGE = 2
"""Of Linux: see renameat2(2)."""


def exchange(one: Path, other: Path) -> bool:
    """Whether the two have changed places. Both are as they were where the system, or the disk, cannot do it."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    done: int = renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    return done == 0
