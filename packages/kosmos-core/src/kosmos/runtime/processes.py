"""Which processes run on this machine, and which has started which: by ``/proc``, and by ``ps`` where there is none."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

PROC = Path("/proc")
"""Not on macOS."""


def can_be_listed() -> bool:
    """Whether it can be known here."""
    return _has_proc() or shutil.which("ps") is not None


def children(parent: int) -> list[int]:
    """The processes that ``parent`` has started and that run."""
    return [number for number, of in _running() if of == parent]


def any_runs(numbers: Collection[int]) -> bool:
    """Whether one of them runs. One that is dead and that nobody asks about, as in many containers, does not."""
    if _has_proc():
        return any(_read(PROC / str(number)) is not None for number in numbers)
    return any(number in numbers for number, _ in _running())


def _has_proc() -> bool:
    return PROC.joinpath("self", "stat").exists()


def _running() -> Iterator[tuple[int, int]]:
    """Each process and what has started it."""
    if not _has_proc():
        yield from _told_by_ps()
        return
    for folder in PROC.glob("[0-9]*"):
        if (parent := _read(folder)) is not None:
            yield int(folder.name), parent


def _read(folder: Path) -> int | None:
    """What has started a process; None where it does not run any more."""
    try:
        state, parent = folder.joinpath("stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
    except (OSError, ValueError):  # it has just ended
        return None
    return None if state == "Z" else int(parent)


def _told_by_ps() -> Iterator[tuple[int, int]]:
    try:  # in a session of its own: a Ctrl-C is not for it
        ps = subprocess.Popen(
            ["ps", "-axo", "pid=,ppid=,stat="], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
    except OSError:
        return
    for line in ps.communicate()[0].splitlines():
        number, parent, state = line.split()[:3]
        if int(number) != ps.pid and not state.startswith("Z"):
            yield int(number), int(parent)
