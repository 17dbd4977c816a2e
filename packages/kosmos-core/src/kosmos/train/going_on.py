"""What goes on with a run: a command or, where its documents were given in Python, a call."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kosmos.data.sources.given import is_noted
from kosmos.errors import ConfigError
from kosmos.run_file import read_run_file


def resume_command(path: Path, processes: int = 1) -> str:
    """What goes on with the run in ``path``, for a shell."""
    shared = ["--nproc", str(processes)] if processes > 1 else []
    return shlex.join(["kosmos", "train", "--resume", str(path), *shared])


def resume_call(path: Path, *, held_out: bool, accept_plugins: bool = False) -> str:
    """What goes on with the run in ``path``, whose documents were given in Python.

    Args:
        held_out: whether it was given some to score, too.
    """
    more = ", held_out=..." * held_out + ", accept_plugins=True" * accept_plugins
    return f"resume_run({str(path)!r}, sources=...{more})"


def what_resumes(path: Path) -> str:
    """What goes on with the run in the folder ``path``, where nothing else is known of it."""
    if not _was_given(path):
        return resume_command(path)
    scores = path / "held_out.jsonl"
    return resume_call(path, held_out=scores.is_file() and scores.stat().st_size > 0)


def _was_given(path: Path) -> bool:
    """Whether its run file notes that documents were given in Python."""
    try:
        data: Any = read_run_file(path / "run.yaml").get("data")
    except ConfigError:  # there is none, or none that can be read
        return False
    entries: Any = data.get("sources") if isinstance(data, Mapping) else None
    listed = entries if isinstance(entries, list) else []
    return any(is_noted(str(entry.get("path"))) for entry in listed if isinstance(entry, Mapping))


def in_quotes(text: str) -> str:
    """A command or a call within a sentence."""
    mark = '"' if "'" in text else "'"
    return f"{mark}{text}{mark}"
