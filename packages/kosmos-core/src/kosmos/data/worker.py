"""The process that reads, plans, packs and decodes some lanes: ``python -m kosmos.data.worker``.

Started by ``kosmos.data.feeder`` with three inherited file descriptors: orders, rows, and two shared
integers that name the sample under way, so that the parent knows which one killed a decoder. A plain
program rather than a fork: it shares no threads, locks or device with the trainer.
"""

from __future__ import annotations

import mmap
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

NOTHING = -1
"""What the shared integers hold between samples."""


def main(orders_fd: int, rows_fd: int, marker_fd: int) -> None:
    """Make rows until the parent closes the pipe."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they go to the whole group; the parent decides
        signal.signal(number, signal.SIG_IGN)
    orders, rows = Connection(orders_fd, writable=False), Connection(rows_fd, readable=False)
    marker = np.frombuffer(mmap.mmap(marker_fd, 16), np.int64)
    try:
        sys.path[:] = orders.recv()
        feed, states = orders.recv()
        _serve(feed, states, rows, marker)
    except (BrokenPipeError, EOFError):
        return
    except BaseException as error:
        _report(rows, error)


def _serve(feed: Any, states: dict[int, Any], rows: Connection, marker: np.ndarray[Any, Any]) -> None:
    from kosmos.data.lane import Lane

    def watch(source: int, row: int) -> None:
        marker[:] = source, row

    lanes = [Lane(feed, number, watch) for number in states]
    for lane, state in zip(lanes, states.values(), strict=True):
        if state is not None:
            lane.load(state)
    while lanes:
        for lane in list(lanes):
            row = lane.next_row()
            marker[:] = NOTHING, NOTHING
            rows.send((lane.number, row))
            if row is None:
                lanes.remove(lane)


def _report(rows: Connection, error: BaseException) -> None:
    from kosmos.errors import KosmosError

    known = error if isinstance(error, KosmosError) else None
    text = str(known) if known else "".join(traceback.format_exception(error))
    rows.send((type(error) if known else None, text))


if __name__ == "__main__":
    main(*(int(fd) for fd in sys.argv[1:4]))
