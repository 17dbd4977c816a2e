"""What tells a file from the one that it was when its rows were found, so that no other data are read in their place.

That is its size and the time of its last change. Its inode is none of it, which file systems of object stores give anew
whenever they like, nor is the time that ``chmod`` and links set, which leave the content as it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.errors import DataError, SampleError

CHANGED = (
    "no row is here any more: the file was changed after its rows were found; leave data as they are while they are "
    "read, and write others under another name"
)
"""Of a row that is where it was no more."""

LOOK_S = 0.5
"""Seconds after which one looks at files again of which nobody knows which one a row lies in."""

State = tuple[int, int]
"""Bytes of a file, and the time of its last change in nanoseconds."""


def state_of(path: Path | str) -> State:
    """Raises OSError where there is no such file."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def states_of(paths: Sequence[Path]) -> NDArray[np.int64]:
    """The ``State`` of each of several files, as their rows are about to be found: [files, 2].

    Raises:
        DataError: one cannot be read.
    """
    found = np.empty((len(paths), 2), np.int64)
    for number, path in enumerate(paths):
        try:
            found[number] = state_of(path)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return found


def state_at(states: NDArray[np.int64], number: int) -> State:
    """That of one of several files; ``states`` as ``states_of`` gives them."""
    return states.item(number, 0), states.item(number, 1)


def check_state(path: Path, known: State) -> None:
    """Raises SampleError where a file is another than it was, OSError where there is none."""
    if state_of(path) != known:
        raise SampleError(CHANGED)


def has_changed(now: State, known: State, *, may_grow: bool) -> bool:
    """Whether a file is another than it was.

    Args:
        may_grow: whether it may have become longer: what was there is looked at as it is read.
    """
    return now != known and not (may_grow and now[0] > known[0])


class StatesInTime:
    """Files that a library maps into memory: what is written into them is seen there at once, in every row."""

    def __init__(self, files: Sequence[Path], states: NDArray[np.int64]) -> None:
        self.files, self.states = tuple(files), states
        self._next, self._changed = 0.0, False

    def __getstate__(self) -> dict[str, Any]:
        """To be looked at where it comes to, before its first row: there the files are opened anew."""
        return {**vars(self), "_next": 0.0}

    def check(self) -> None:
        """Raises SampleError where one was changed; looked at twice a second at most."""
        if not self._changed and monotonic() >= self._next:
            self._changed = any(self._is_another(number) for number in range(len(self.files)))
            self._next = monotonic() + LOOK_S
        if self._changed:
            raise SampleError(CHANGED)

    def _is_another(self, number: int) -> bool:
        try:
            return state_of(self.files[number]) != state_at(self.states, number)
        except OSError:  # of what is mapped already nothing is lost
            return False
