"""Ranks that are started one by one, as on several nodes, without a launcher."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from support import told_in_turn
from support.command import Started
from support.torchrun import LOOPBACK, done

Told = Sequence[object]
End = tuple[int, str]
"""Exit status of a rank and what it said."""


CAP_S = 240
"""Of all cases together; each has its own end in ``told_in_turn``."""


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def start_ranks(
    programs: Sequence[Sequence[object]],
    *,
    path: Sequence[Path] = (),
    own: Callable[[int], Mapping[str, str]] = lambda rank: {"LOCAL_RANK": str(rank)},
    **variables: str,
) -> list[Started]:
    """A process of Python for each program, which is told that it is one of so many ranks.

    Args:
        own: variables of a rank alone.
    """
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    place = {**master, "WORLD_SIZE": str(len(programs)), **LOOPBACK, **variables}
    return [
        Started(path=path, program=[sys.executable, *map(str, program)], **place, RANK=str(rank), **own(rank))
        for rank, program in enumerate(programs)
    ]


def train_in_turn(
    home: Path,
    cases: Mapping[str, Sequence[Told]],
    *,
    path: Sequence[Path] = (),
    own_folders: bool = False,
    imports: Sequence[str] = (),
) -> dict[str, list[End]]:
    """Ends of the ranks in each case, which the same processes take one after the other.

    Args:
        cases: what ``kosmos train`` of each rank is told.
        path: in front of what is importable.
        own_folders: each rank runs in a folder with its number, in that of the case; else all run in ``home``.
        imports: what the ranks need that takes long to import.
    """
    ranks = len(next(iter(cases.values())))
    entries = []
    for name, told in cases.items():
        folders = [home / name / str(rank) if own_folders else home for rank in range(ranks)]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        entries.append({"port": home / f"port-{name}", "folders": folders, "told": told})
    (home / "cases.json").write_text(json.dumps(entries, default=str))
    program = [sys.executable, told_in_turn.__file__, str(home / "cases.json"), ",".join(imports)]
    place = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(ranks), **LOOPBACK}
    done(Started(path=path, program=program, **place), at_most_s=CAP_S)
    ends = zip(*([json.loads(line) for line in _lines(home, rank)] for rank in range(ranks)), strict=True)
    return {name: [(status, said) for status, said in of] for name, of in zip(cases, ends, strict=True)}


def _lines(home: Path, rank: int) -> list[str]:
    return (home / f"ends-{rank}.jsonl").read_text().splitlines()
