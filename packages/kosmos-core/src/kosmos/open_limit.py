"""How many files a process may have open, and what is told where it needs more."""

from __future__ import annotations

import errno
import resource

from kosmos.errors import TrainingError

IN_VAIN = (errno.EMFILE, errno.ENFILE)
"""Errors of a process, or of a machine, that may open no more files."""
SHARE = 4
"""A quarter of what a process may open is for files of rows: libraries, workers and logs need the others."""
ADVICED = 4096


class TooManyOpen(TrainingError):
    """A process may open no more files. No data are at fault."""

    code = "open-files"


def most_open() -> int:
    """Files that this process may have open; a large number where that is not limited."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def may_open(wished: int) -> int:
    """How many files of rows may stay open, at least one."""
    return max(1, min(wished, most_open() // SHARE))


def too_many_open(error: BaseException | None) -> TooManyOpen | None:
    """What to tell where an error is that no more files can be opened, or was caused by that; None of others."""
    seen = 0
    while error is not None and seen < 100:
        if isinstance(error, OSError) and error.errno in IN_VAIN:
            return TooManyOpen(told(error.errno, error.filename))
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None


def told(number: int | None, file: object = None) -> str:
    """The line about an error of this number, at a file."""
    at = f"{file}: cannot be opened: " if file else ""
    if number == errno.ENFILE:
        return f"{at}the machine has as many files open as it may have in all; end other programs, or raise fs.file-max"
    return (
        f"{at}this process has as many files open as it may have ({most_open():,}); raise that (ulimit -n {ADVICED}) "
        "and start again"
    )
