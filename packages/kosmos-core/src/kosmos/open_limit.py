"""How many files a process may have open, and what is told where it needs more."""

from __future__ import annotations

import errno
import os

from kosmos.errors import TrainingError

IN_VAIN = (errno.EMFILE, errno.ENFILE)
"""Errors of a process, or of a machine, that may open no more files."""
SHARE = 4
"""A quarter of what a process may open is for files of rows: libraries, workers and logs need the others."""
ADVISED = 4096
"""As many are enough for any number of files of rows."""
_MOST_CAUSES, _MOST_WORDS = 32, 200


class TooManyOpen(TrainingError):
    """A process may open no more files. No data are at fault."""

    code = "open-files"


def most_open() -> int:
    """Files that this process may have open; a large number where that is not limited."""
    import resource  # which Windows lacks, where the command says that it does not run there

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def may_open(wished: int) -> int:
    """How many files of rows may stay open, at least one."""
    return max(1, min(wished, most_open() // SHARE))


def too_many_open(error: BaseException | None) -> TooManyOpen | None:
    """What to tell where an error is that no more files can be opened, or was caused by that; None of others."""
    seen: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if seen is None:
            break
        if isinstance(seen, OSError) and seen.errno in IN_VAIN:
            return TooManyOpen(told(seen.errno, seen.filename))
        seen = seen.__cause__ or seen.__context__
    by_words = os.strerror(errno.EMFILE) in str(error)  # of a library, or of another process
    return TooManyOpen(f"{told(errno.EMFILE)} ({' '.join(str(error).split())[:_MOST_WORDS]})") if by_words else None


def told(number: int | None, file: object = None) -> str:
    """The line about an error of this number, at a file."""
    at = f"{file}: cannot be opened: " if file else ""
    if number == errno.ENFILE:
        return f"{at}the machine has as many files open as it may have in all; end other programs, or raise fs.file-max"
    return (
        f"{at}this process has as many files open as it may have ({most_open():,}); raise that (ulimit -n {ADVISED}) "
        "and start again"
    )
