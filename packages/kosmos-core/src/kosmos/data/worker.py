"""The program of a process that reads, plans, packs and decodes some lanes.

Started by ``kosmos.data.supervisor`` with five inherited file descriptors: orders, rows, memory for the rows' arrays, a
marker that names the sample under way, so that the parent knows which one killed a decoder, and the feed. A plain
program rather than a fork: it shares no threads, locks or device with the trainer.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kosmos.data.marker import Marker
    from kosmos.data.orders import Place, Share
    from kosmos.data.shared_rows import RowSender


def main(orders_fd: int, rows_fd: int, memory_fd: int, marker_fd: int, feed_fd: int) -> None:
    """Make rows until the parent closes the pipe."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they go to the whole group; the parent decides
        signal.signal(number, signal.SIG_IGN)
    _die_with_parent()
    orders, rows = Connection(orders_fd, writable=False), Connection(rows_fd, readable=False)
    try:
        sys.path[:] = orders.recv()
        from kosmos.data.marker import Marker
        from kosmos.data.shared_rows import RowSender

        feed, lanes = _receive(orders, feed_fd)
        _serve(feed, lanes, RowSender(rows, memory_fd), Marker(marker_fd))
    except (BrokenPipeError, EOFError):
        return
    except BaseException as error:
        _report(rows, error)


def _die_with_parent() -> None:
    """Where the system can: one that hangs in a decoder never comes to see that nobody reads it."""
    import ctypes

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _receive(orders: Connection, feed_fd: int) -> Any:
    """The feed, and what is this worker's. Objects of plugins are rebuilt here, by the names of their classes."""
    from kosmos.data.foreign import first_line
    from kosmos.data.orders import received
    from kosmos.errors import PluginError

    places, lanes = orders.recv()
    try:
        return received(feed_fd, places), lanes
    except (BrokenPipeError, EOFError, MemoryError):
        raise
    except Exception as error:
        raise PluginError(
            f"a data worker cannot rebuild the processors and sources of this run ({first_line(error)}); their classes "
            "have to be importable from a module, not defined in the script or notebook that is run; data.workers=0 "
            "avoids it"
        ) from error


def _serve(feed: Any, given: dict[int, tuple[Share, Place]], rows: RowSender, marker: Marker) -> None:
    from kosmos.data.lane import Lane

    lanes = {number: Lane(feed, number, marker.set, rows.room) for number in given}
    turns = {number: place.turn for number, (_, place) in given.items()}
    for number, (_, place) in given.items():
        lanes[number].load(place.state)
    while lanes:
        for number, lane in list(lanes.items()):
            share = given[number][0]
            while not share.has(turns[number]) and lane.skip():
                turns[number] += 1
            before = lane.state() if share.of > 1 else None
            found = lane.turn()
            marker.turn_is_over()
            turns[number] += 1
            rows.send((number, (before, found)))
            if found is None:
                del lanes[number]


def _report(rows: Connection, error: BaseException) -> None:
    """Send an error in place of a row: its kind, text and bad samples, in the form of ``RowSender``, which may
    be what failed."""
    from kosmos.errors import DataError, KosmosError, cause

    kind: type[BaseException]
    trace = ""
    if isinstance(error, MemoryError):
        kind, text = MemoryError, " ".join(["a data worker ran out of memory:", str(error), *_notes(error)])
    elif isinstance(error, KosmosError):
        kind, text = type(error), str(error)
    else:
        kind, text = DataError, f"a data worker failed: {cause(error)[:300]}{_place(error)}"
        trace = "".join(traceback.format_exception(error))
    incidents = getattr(error, "incidents", ())
    rows.send((pickle.dumps((kind, (text, trace, incidents))), None, []))


def _place(error: BaseException) -> str:
    """Where an error came up: in the code of a plugin, where that is on the way to it."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    others = [(f, line) for f, line in frames if _package(f.f_globals.get("__name__")) not in _NOT_PLUGINS]
    for frame, line in (others or frames)[-1:]:
        return f" ({frame.f_globals.get('__name__')}, {os.path.basename(frame.f_code.co_filename)}:{line})"
    return ""


def _package(module: object) -> str:
    return str(module).partition(".")[0]


_NOT_PLUGINS = sys.stdlib_module_names | {"__main__", "kosmos", "numpy"}


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


if __name__ == "__main__":
    main(*(int(fd) for fd in sys.argv[1:6]))
