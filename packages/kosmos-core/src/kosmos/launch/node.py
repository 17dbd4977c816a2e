"""``python -m kosmos.launch.node``: torchrun, with time to save and an exit status that says how it ended.

It takes torchrun's arguments and differs in two points. torchrun gives its ranks 30 seconds after a signal and then
kills them, which a large checkpoint does not fit into; here SIGTERM, SIGINT and SIGUSR1 are passed on and waited
for, and whoever sent them sets the limit. And torchrun ends with 1 whatever its ranks ended with; here a stop that
was asked for can be told from a mistake in the run file and from a crash, so that a scheduler tries again or not.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kosmos.errors import Interrupted

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ranks of this node to their end and return their exit status."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    # torchrun wants to handle one signal at least: the one that we leave to it.
    args = parse_args(["--signals-to-handle", "SIGHUP", *(sys.argv[1:] if argv is None else argv)])  # type: ignore[no-untyped-call]
    for number in STOP_SIGNALS:
        signal.signal(number, _pass_on)
    try:
        run(args)  # type: ignore[no-untyped-call]
    except ChildFailedError as failed:
        return exit_status(failure.exitcode for failure in failed.failures.values())
    return 0


def exit_status(statuses: Iterable[int]) -> int:
    """Of the ranks that failed (negative: the signal that killed it), the status that says most.

    An error of its own comes before a stop that was asked for, and that before a rank that was killed.
    """
    found = list(statuses)
    errors = [status for status in found if status > 0 and status != Interrupted.exit_status]
    if errors:
        return errors[0]
    if Interrupted.exit_status in found:
        return Interrupted.exit_status
    return 128 - found[0] if found else 1


def _pass_on(number: int, frame: Any) -> None:
    """Ask the ranks to stop: with SIGTERM, whatever the scheduler's signal was."""
    for child in children(os.getpid()):
        try:
            os.kill(child, signal.SIGTERM)
        except ProcessLookupError:
            continue


def children(parent: int) -> Iterator[int]:
    """The processes that ``parent`` has started and that run (Linux: torchrun keeps them to itself)."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, found = folder.joinpath("stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
        except OSError:  # it has just ended
            continue
        if int(found) == parent and state != "Z":
            yield int(folder.name)


if __name__ == "__main__":
    sys.exit(main())
