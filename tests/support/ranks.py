"""Ranks that are started one by one, as on several nodes, without a launcher."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from support import told_in_turn
from support.command import Started
from support.torchrun import LOOPBACK, done

Told = Sequence[object]
End = tuple[int, str]
"""Exit status of a rank and what it said."""


def free_ports(number: int) -> list[str]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [str(free.getsockname()[1]) for free in sockets]


def start_ranks(programs: Sequence[Sequence[object]], *, path: Sequence[Path] = (), **variables: str) -> list[Started]:
    """A process of Python for each program, which is told that it is one of so many ranks."""
    (port,) = free_ports(1)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(len(programs)), **LOOPBACK, **variables}
    return [
        Started(path=path, program=[sys.executable, *map(str, program)], **place, RANK=str(rank), LOCAL_RANK=str(rank))
        for rank, program in enumerate(programs)
    ]


def train_in_turn(
    home: Path, cases: Mapping[str, Sequence[Told]], *, path: Sequence[Path] = (), own_folders: bool = False
) -> dict[str, list[End]]:
    """Ends of the ranks in each case, which the same processes take one after the other.

    Args:
        cases: what ``kosmos train`` of each rank is told.
        path: in front of what is importable.
        own_folders: each rank runs in a folder with its number, in that of the case; else all run in ``home``.
    """
    ranks = len(next(iter(cases.values())))
    entries = []
    for (name, told), port in zip(cases.items(), free_ports(len(cases)), strict=True):
        folders = [home / name / str(rank) if own_folders else home for rank in range(ranks)]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        entries.append({"port": port, "folders": folders, "told": told})
    (home / "cases.json").write_text(json.dumps(entries, default=str))
    runs = start_ranks([[told_in_turn.__file__, home / "cases.json"]] * ranks, path=path)
    printed = [[json.loads(line) for line in done(run).splitlines()] for run in runs]
    ends = zip(*printed, strict=True)
    return {name: [(status, said) for status, said in of] for name, of in zip(cases, ends, strict=True)}
