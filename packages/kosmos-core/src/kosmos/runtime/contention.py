"""Whether threads that compute together have no core of their own, by what the system counts."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import torch

from kosmos.runtime.cores import usable_cores

WINDOW_S = 15.0
"""That is looked at as a whole, so that a program that only starts is passed over."""
TOO_MUCH = 0.25
"""Of the time: alone, with a data worker, it was 0.09 to 0.16, beside one busy process 0.36, beside a training 0.52."""
_COUNTS = Path("/proc/thread-self/schedstat")
"""Nanoseconds that this thread ran, and that it could have run and had no core."""


class Contention:
    """Notices once that several threads of a CPU wait for each other because others have their cores.

    OpenMP's threads spin while they wait, so that steps take several times as long, or ten times, without a word.
    """

    def __init__(self, device: torch.device, *, window_s: float | None = None) -> None:
        """
        Args:
            window_s: in place of ``WINDOW_S``, of what lasts shorter than a run.
        """
        self.window_s = WINDOW_S if window_s is None else window_s
        self.threads = torch.get_num_threads()
        self.done = device.type != "cpu" or self.threads < 2
        self._begin()

    def look(self) -> str | None:
        """After a step, in the thread that takes it. Returns what to tell the user; mostly None."""
        if self.done or (passed := perf_counter() - self.began) < self.window_s:
            return None
        share = (_waited_s() - self.waited_s) / passed
        self._begin()
        if share < TOO_MUCH:
            return None
        self.done = True
        return (
            f"for {100 * share:.0f} % of the last {passed:.0f} s this run had to wait for a core, and each of its "
            f"{self.threads} threads for the others: other programs use its {usable_cores()} cores too, and steps may "
            "take ten times as long. Stop them, or go on (--resume) with OMP_NUM_THREADS set to the cores that are free"
        )

    def _begin(self) -> None:
        self.began, self.waited_s = perf_counter(), _waited_s()


def _waited_s() -> float:
    """Seconds that this thread could have run and had no core, ever; 0 where the system does not say."""
    try:
        return int(_COUNTS.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
