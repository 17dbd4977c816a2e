"""Open the files of a source: of several that are damaged the error names all, so that they can be mended at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kosmos.errors import DataError
from kosmos.names import listed

NAMED = 5
"""Files that are named beside the first, which is told of at length."""

Opened = TypeVar("Opened")


def open_each(paths: Sequence[Path], open_one: Callable[[Path], Opened]) -> list[Opened]:
    """What ``open_one`` makes of each path.

    Raises:
        DataError: some cannot be used; what is wrong with the first, and which others there are.
    """
    found: list[Opened] = []
    unusable: dict[Path, DataError] = {}
    for path in paths:
        try:
            found.append(open_one(path))
        except DataError as error:
            unusable[path] = error
    if not unusable:
        return found
    first, *others = unusable
    if not others:
        raise unusable[first]
    are = " is" if len(others) == 1 else "s are"
    raise DataError(
        f"{unusable[first]}; {len(unusable):,} of {len(paths):,} files cannot be used, the other{are} "
        f"{listed(map(str, others), at_most=NAMED)}"
    ) from unusable[first]
