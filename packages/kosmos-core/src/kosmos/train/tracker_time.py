"""What trackers and observers take of a run's time: the next step waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

ROWS = 3
"""After which one may be called slow, the first not counted: it may open a connection."""
MOST_S, MOST_SHARE = 2.0, 0.1
"""Seconds that one may take since its first row, and their share of the time since: one that passes both is slow."""


class TrackerTime:
    """Seconds of each, and a warning once for one that is slow."""

    def __init__(self, report: Callable[[str], None], *, now: Callable[[], float] = perf_counter) -> None:
        """
        Args:
            report: shows a line to the user.
            now: the clock, in seconds.
        """
        self._report, self._now = report, now
        self._since: dict[str, float] = {}
        """When the first row was done."""
        self._spent: dict[str, float] = {}
        self._rows: dict[str, int] = {}
        self._told: set[str] = set()

    @contextmanager
    def taking(self, who: str) -> Iterator[None]:
        """A row is given to ``who``, such as ``"tracker http"``."""
        begin = self._now()
        yield
        end = self._now()
        if who not in self._since:
            self._since[who], self._spent[who], self._rows[who] = end, 0.0, 0
            return
        self._spent[who] += end - begin
        self._rows[who] += 1
        rows, spent, share = self._rows[who], self._spent[who], self._spent[who] / max(end - self._since[who], 1e-9)
        if who not in self._told and rows >= ROWS and spent > MOST_S and share > MOST_SHARE:
            self._told.add(who)
            self._report(
                f"warning: {who} takes {spent / rows:.2g} s a row ({100 * share:.0f} % of the time): the next step "
                "waits for it, and step_s and tokens_per_s do not count it; let it work in a thread of its own"
            )
