"""How many cores this process may use: in a container, under Slurm or beside other ranks fewer than the machine has."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kosmos.runtime.parallel import Parallel

GROUPS = Path("/sys/fs/cgroup")
"""Where the system shows its groups of processes and what they may take."""
MOST_HELPERS = 8


def usable_cores() -> int:
    """Those that the process may run on, or as many as its groups have time of, where that is less; 1 at least."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        allowed = os.cpu_count() or 1
    return max(1, int(min(allowed, quota(GROUPS, _own_group()))))


def helpers_of_rank(parallel: Parallel) -> int:
    """Processes or threads that work beside a rank: half the cores that are its share, 1 to ``MOST_HELPERS``."""
    return min(MOST_HELPERS, max(1, usable_cores() // parallel.local_world_size // 2))


def quota(groups: Path, own: str) -> float:
    """Cores' worth of time that the group ``own`` and those above it have (cgroup v2, else v1); inf without a limit."""
    found, place = inf, groups / own.strip("/")
    while place.is_relative_to(groups):
        found = min(found, _share(place / "cpu.max"))
        place = place.parent
    return min(found, _share(groups / "cpu" / "cpu.cfs_quota_us", groups / "cpu" / "cpu.cfs_period_us"))


def _share(*files: Path) -> float:
    """Time over the period that it is of; inf where the files say no such thing, or no limit ("max" or -1)."""
    try:
        time, period = (int(word) for file in files for word in file.read_text().split())
    except (OSError, ValueError):
        return inf
    return time / period if time > 0 and period > 0 else inf


def _own_group() -> str:
    """Path of this process's group (cgroup v2)."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")
