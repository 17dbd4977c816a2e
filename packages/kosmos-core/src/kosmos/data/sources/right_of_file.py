"""How a file of questions says which answer is right, where a row by itself may mean two.

``{"options": ["1", "2", "3", "4"], "answer": "2"}`` may be the text of an answer or its number from 0 on, and with the
options ``["B", "A"]`` the answer ``"B"`` may be a text or a letter. What other rows say decides: where some can be
read in one of the two ways alone, and none in the other alone, that way is meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kosmos.data.sources.offering import INDEX, LETTER, TEXT
from kosmos.errors import DataError

NUMBER = "number"
"""What is no text but a number is meant as that of an answer, unless other rows say that it is its text."""
Ways = Mapping[str, int]
"""In which ways a row can be read, each with the number of the answer that is right then."""
MOST_LOOKED_AT = 2_000
"""Further rows that are looked at where those that are asked do not decide."""
_CALLED = {INDEX: "a number from 0 on", LETTER: "a letter", TEXT: "a text"}


@dataclass
class RightOfFile:
    """What the rows of a file say together."""

    rows: int = 0
    ways: Counter[frozenset[str]] = field(default_factory=Counter)
    """How often rows can be read so, and in no other way."""
    doubtful: dict[int, Ways] = field(default_factory=dict)
    """Rows that mean one of two answers."""
    counted: dict[int, Ways] = field(default_factory=dict)
    """Rows of a number that ``decided`` takes for a place, as nothing says that it is a text."""

    def look(self, place: int, ways: Ways) -> None:
        self.rows += 1
        self.ways[_kinds(ways)] += 1
        if len({*ways.values()}) > 1:
            self.doubtful[place] = ways

    def decided(self, others: Callable[[], Iterable[Ways]]) -> tuple[dict[int, int], dict[int, Ways]]:
        """Doubtful rows with the number of their right answer, and those of which nothing decides.

        Args:
            others: what further rows say.
        """
        if self.doubtful and any(self._way(ways) is None for ways in self.doubtful.values()):
            for ways in others():
                self.ways[_kinds(ways)] += 1
        found, left = dict[int, int](), dict[int, Ways]()
        for place, ways in self.doubtful.items():
            if (way := self._way(ways)) is None:
                (self.counted if NUMBER in ways else left)[place] = ways
            else:
                found[place] = ways[way]
        return found, left

    def _way(self, ways: Ways) -> str | None:
        one, other = sorted(ways)
        kinds = {way: _kinds([way]) for way in ways}
        alone = {
            way: sum(n for seen, n in self.ways.items() if kinds[way] <= seen and not kinds[rest] <= seen)
            for way, rest in ((one, other), (other, one))
        }
        if bool(alone[one]) == bool(alone[other]):
            return None
        return one if alone[one] else other


def _kinds(ways: Iterable[str]) -> frozenset[str]:
    return frozenset(INDEX if way == NUMBER else way for way in ways)


def told_of_counted(rows: int, counted: Mapping[int, Ways], origin: str, offered: str) -> str:
    """A warning of numbers that were taken for places.

    Args:
        rows: of the file that were looked at.
        origin: of the first of them.
        offered: its answers.
    """
    are = f"{len(counted):,} of {rows:,} rows give" if rows > 1 else "its row gives"
    return (
        f"{are} a number that is the place of one answer, from 0 on, and the text of another; it is taken for a place, "
        f"as no row decides; say which (options: {{answer_is: {INDEX}}} or {TEXT}); the first: {origin}: {offered}"
    )


def refuse_doubtful(name: str, rows: int, left: Mapping[int, Ways], origin: str, said: str) -> None:
    """Raises DataError of rows of which nothing decides.

    Args:
        rows: of the file that were looked at.
        origin: of the first of them.
        said: what it says.
    """
    ways = sorted(next(iter(left.values())), key=[INDEX, LETTER, TEXT].index)
    are = f"{len(left):,} of {rows:,} rows say" if rows > 1 else "its row says"
    raise DataError(
        f"{name}: {are} what is right as {_CALLED[ways[0]]} or as {_CALLED[ways[1]]}, which is another answer, and no "
        f"other row decides; say which (options: {{answer_is: {ways[0]}}} or {ways[1]}); the first: {origin}: {said}"
    )
