"""Where the sources of a run lie, and which of them share files."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kosmos.data.sources.folders import MANIFEST
from kosmos.errors import DataError
from kosmos.patterns import files_of, real_paths


class Places:
    """Where sources lie, each looked up once however many it is compared with; for as long as no file changes."""

    def __init__(self) -> None:
        self._found: dict[Path, _Lies] = {}

    def overlap(self, one: Path, other: Path) -> bool:
        """Whether one lies in the other; of a pattern, whether any of its files does."""
        ones, others = self._of(one), self._of(other)
        if not (_is_in(ones.folder, others.folder) or _is_in(others.folder, ones.folder)):
            return False
        return not (ones.around.isdisjoint(others.places) and others.around.isdisjoint(ones.places))

    def pairs(self, named: Sequence[Path]) -> Iterator[tuple[int, int]]:
        """Numbers of all that overlap, either way round and in order, without a look at each pair of thousands."""
        by_place: defaultdict[str, list[int]] = defaultdict(list)
        for number, one in enumerate(named):
            for place in self._of(one).places:
                by_place[place].append(number)
        found = set[tuple[int, int]]()
        for number, one in enumerate(named):
            others = {other for place in self._of(one).around & by_place.keys() for other in by_place[place]}
            found |= {pair for other in others - {number} for pair in ((number, other), (other, number))}
        yield from sorted(found)

    def _of(self, named: Path) -> _Lies:
        if named not in self._found:
            self._found[named] = _lies(named)
        return self._found[named]


class _Lies(NamedTuple):
    """Where one source lies, without links."""

    folder: str | None
    """The one that holds all its places, or its only place; None where nothing is there."""
    places: frozenset[str]
    """Its file or folder, or the files of a pattern."""
    around: frozenset[str]
    """These and all folders around them."""


def _lies(named: Path) -> _Lies:
    try:
        files = real_paths(path for path in files_of(named) if path.exists())
    except DataError:  # of a pattern that has none
        files = []
    places = frozenset(os.path.dirname(file) if os.path.basename(file) == MANIFEST else file for file in files)
    around = set(places)
    for place in places:
        while (place := os.path.dirname(place)) not in around:  # whose own folders are there too
            around.add(place)
    return _Lies(os.path.commonpath(places) if places else None, places, frozenset(around))


def _is_in(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and (one == other or one.startswith(other.rstrip("/") + "/"))
