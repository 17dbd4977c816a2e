"""The clock of ``train.max_time``."""

from __future__ import annotations

import time
from collections.abc import Callable

from kosmos.durations import seconds_of
from kosmos.runtime.parallel import Parallel


class TimeBudget:
    """How long one start of a run may take. All ranks end after the same step, whichever clock says so first."""

    def __init__(
        self, stated: str | None, began: float, parallel: Parallel, now: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
            stated: ``train.max_time``.
            began: when the start began, by ``now``.
        """
        self.stated, self._parallel, self._now = stated, parallel, now
        self._ends_at = None if stated is None else began + seconds_of(stated)
        self.first = 0
        """The step that the start goes on from."""
        self.is_spent = False
        """Whether all ranks have agreed to end."""

    def is_over(self, step: int) -> bool:
        """Whether this rank would end behind ``step``: not before one was taken, so that each start gets on."""
        return self._ends_at is not None and step > self.first and self._now() >= self._ends_at

    def agree(self, step: int) -> None:
        """All ranks call it where one would end."""
        self.is_spent = any(self._parallel.gather(self.is_over(step)))

    def told(self, step: int, steps: int, go_on: str) -> str:
        """That it is spent, for a person."""
        return (
            f"stopped at step {step} of {steps}, all saved: train.max_time {self.stated} is over; go on with: {go_on}"
        )
