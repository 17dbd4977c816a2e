"""How many cores this process may use: in a container, under Slurm or beside other ranks fewer than the machine has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import inf
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
"""Where the system shows its groups of processes and what they may take."""
MOST_HELPERS = 8


def usable_cores() -> int:
    """Those that the process may run on, or as many as its groups have time of, where that is less; 1 at least."""
    return max(1, int(min(len(_affinity()), quota(GROUPS, _own_groups()))))


def hold_threads() -> None:
    """Let PyTorch have no more threads than cores' worth of time. ``OMP_NUM_THREADS`` goes before.

    It counts the cores that it may run on, and threads that wait for their turn hold up the others.
    """
    import torch

    if "OMP_NUM_THREADS" not in os.environ and (cores := usable_cores()) < torch.get_num_threads():
        torch.set_num_threads(cores)


def helpers_of_rank(ranks: int) -> int:
    """Processes or threads that work beside each rank of a node: half its share of cores, 1 to ``MOST_HELPERS``."""
    cores = _affinity()
    # What started a rank has bound it to some of its own cores, or all its ranks share them.
    alone = cores < _affinity(os.getppid())
    share = min(len(cores) if alone else len(cores) / ranks, quota(GROUPS, _own_groups()) / ranks)
    return min(MOST_HELPERS, max(1, int(share / 2)))


def _affinity(process: int = 0) -> set[int]:
    """The cores that a process, or this one, may run on."""
    try:
        return os.sched_getaffinity(process)
    except (AttributeError, OSError):  # not on macOS; or the process is gone
        return set(range(os.cpu_count() or 1))


def quota(groups: Path, own: Mapping[str, str]) -> float:
    """Cores' worth of time that a process has by the system's groups; inf without a limit.

    Args:
        groups: where they are shown.
        own: hierarchy ("" is that of cgroup v2) to the process's own group; those above it limit it too.
    """
    found = inf
    for hierarchy, group in own.items():
        top = groups / hierarchy
        place = top / group.strip("/")
        while place.is_relative_to(top):
            found = min(found, _share(place / "cpu.max"))
            found = min(found, _share(place / "cpu.cfs_quota_us", place / "cpu.cfs_period_us"))
            place = place.parent
    return found


def _share(*files: Path) -> float:
    """Time over the period that it is of; inf where the files say no such thing, or no limit ("max" or -1)."""
    try:
        time, period = (int(word) for file in files for word in file.read_text().split())
    except (OSError, ValueError):
        return inf
    return time / period if time > 0 and period > 0 else inf


def _own_groups() -> dict[str, str]:
    """This process's groups of cgroup v2 and of the hierarchy of v1 that deals out time."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    found = {"": "", "cpu": ""}
    for _, kinds, group in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if not kinds or "cpu" in kinds.split(","):
            found["cpu" if kinds else ""] = group
    return found
