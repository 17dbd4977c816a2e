"""How much memory there is and how much of it is free, where the system tells (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


class Memory(NamedTuple):
    """Bytes."""

    free: int
    """What can be had without anything being swapped or ended; files that the system keeps in memory give way."""
    total: int


def memory(proc: Path = PROC, groups: Path = GROUPS) -> Memory | None:
    """That of the machine, or of a group of processes (a container, a job) that may have less; None is not known."""
    return min(found) if (found := _every(proc, groups)) else None


def total_bytes(proc: Path = PROC, groups: Path = GROUPS) -> int | None:
    """What there is in all, free or not: the least of machine and groups; None is not known."""
    return min((there.total for there in _every(proc, groups)), default=None)


def _every(proc: Path, groups: Path) -> list[Memory]:
    """Of the machine and of the groups that have a limit; none where the system does not tell."""
    try:
        lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
        machine = {name: int(number) << 10 for name, number, *_ in lines}
        found = [Memory(machine["MemAvailable:"], machine["MemTotal:"])]
        found += [group for folder in _folders(proc, groups) if (group := _group(folder)) is not None]
    except (OSError, ValueError, KeyError):
        return []
    return found


def _folders(proc: Path, groups: Path) -> Iterator[Path]:
    """Those of this process's control groups and the groups that they are in, of both versions."""
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers in ("", "memory"):
            top = groups / controllers
            inner = top / name.strip("/")
            yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(top))


def _group(folder: Path) -> Memory | None:
    """None where it has no limit, or is not shown to this process."""
    for most, used, kept in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = (folder / most).read_text().strip()
            if limit == "max":
                return None
            statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            free = int(limit) - int((folder / used).read_text()) + int(statistics[kept])
        except (OSError, KeyError):
            continue
        return Memory(free, int(limit))
    return None
