"""Start a command in several processes on this machine: torchrun's engine without its noise, and with time to save.

torchrun gives its ranks 30 seconds after a signal and then kills them, which a large checkpoint does not fit into. Here
signals are passed on and waited for.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kosmos import collector
from kosmos.errors import ConfigError, Interrupted, KosmosError, TrainingError
from kosmos.runtime.cores import usable_cores
from kosmos.runtime.processes import can_be_listed, children

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
LEFT_TO_TORCHRUN = "SIGHUP"
"""It wants to handle one signal at least."""
_LAUNCHER = os.getppid()
"""As early as can be: it may be killed at any time."""
OTHERS_WAIT_S = 5.0
"""Seconds in which the launcher ends a rank after the first has failed."""
GONE = "the launcher of the run is gone; all ranks end with it"
_NPROC = "KOSMOS_NPROC"
"""Variable that tells the processes how many ``--nproc`` has started."""
_TASKS = "SLURM_STEP_NUM_TASKS"
"""Of srun alone: a batch script has none."""


def check_nproc(processes: int) -> None:
    """Raises ConfigError where the number that ``launch`` is to start is not positive."""
    if processes < 1:
        raise ConfigError(f"--nproc {processes}: expected the number of processes, 1 or more")


def launch(processes: int, arguments: Sequence[str]) -> int:
    """Run ``kosmos ARGUMENTS`` in so many processes that know each other, and wait for them.

    Where one fails the others are stopped.

    Returns:
        What ``exit_status`` makes of theirs, or 0.

    Raises:
        KeyboardInterrupt: a signal came before the first had started.
        Interrupted: one ended them before any could say so.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    collector.imported()
    collector.go_on()  # this process waits
    logging.disable(logging.ERROR)  # the processes say what is wrong
    os.environ[_NPROC] = str(processes)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // processes)))
    # Without an address of its own torch gives the ranks the name of the machine, which many laptops cannot resolve.
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=processes, run_id=uuid.uuid4().hex,
        rdzv_backend="c10d", rdzv_endpoint="localhost:0", local_addr="localhost", max_restarts=0, monitor_interval=0.2,
    )  # fmt: skip
    handed_on: list[int] = []
    if can_be_listed():
        config.signals_to_handle = LEFT_TO_TORCHRUN
        handed_on = pass_signals_on()
    try:
        elastic_launch(config, sys.executable)(*run_kosmos(*arguments))
    except ChildFailedError as failed:
        if handed_on.count(signal.SIGINT) > 1:  # then a rank fails whose peer was gone first, which means nothing
            return Interrupted.exit_status
        if handed_on and {failure.exitcode for failure in failed.failures.values()} == {-handed_on[0]}:
            name = signal.Signals(handed_on[0]).name
            raise Interrupted(f"stopped ({name}) before it began, or as it ended: what was saved stays") from failed
        tell_killed({rank: failure.exitcode for rank, failure in failed.failures.items()})
        return exit_status(failure.exitcode for failure in failed.failures.values())
    except KeyboardInterrupt:
        if not handed_on:
            raise
        return Interrupted.exit_status
    except SignalException:
        return Interrupted.exit_status
    finally:
        del os.environ[_NPROC]
    return 0


def tell_killed(statuses: Mapping[int, int], where: str = "") -> None:
    """Name the ranks that were killed, which cannot say so themselves.

    Args:
        statuses: by rank; negative is the signal that ended it.
        where: what stands behind the rank.
    """
    for rank, status in sorted(statuses.items()):
        if status in (-signal.SIGKILL, -signal.SIGBUS):
            name = signal.Signals(-status).name
            line = f"rank {rank}{where} was killed ({name}): memory may have run out, or somebody has ended it"
            print(TrainingError(line).line(), file=sys.stderr, flush=True)


def run_kosmos(*arguments: str) -> list[str]:
    """Arguments of Python for a process that runs ``kosmos ARGUMENTS``.

    The working folder is looked into for modules only where this process does so itself: it may hold data.
    """
    safely = [] if {"", str(Path.cwd())} & set(sys.path) else ["-P"]
    return [*safely, "-m", "kosmos", *arguments]


def pass_signals_on(as_signal: signal.Signals | None = None) -> list[int]:
    """Hand SIGTERM, SIGINT and SIGUSR1 to the processes that this one starts, which sit in sessions of their own.

    Args:
        as_signal: what they get in place of the signal itself. A third Ctrl-C ends this process as ever, and any signal
            that comes before the first of them has started.

    Returns:
        The signals that were handed on so far. At a second Ctrl-C they end at once.
    """
    handed_on: list[int] = []
    have_started = False

    def hand_on(number: int, frame: Any) -> None:
        nonlocal have_started
        there = children(os.getpid())  # torchrun keeps them to itself
        have_started |= bool(there)
        if not have_started or (number == signal.SIGINT and handed_on.count(number) > 1):
            raise KeyboardInterrupt(signal.Signals(number).name)
        handed_on.append(number)
        for child in there:
            with suppress(ProcessLookupError):
                os.kill(child, as_signal or number)

    for number in STOP_SIGNALS:
        signal.signal(number, hand_on)
    return handed_on


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


def end_with_launcher() -> None:
    """Have this process end once what has started it is gone: who starts the run again would have two write to it.

    Raises:
        TrainingError: it is gone already.
    """
    threading.Thread(target=_look_for_launcher, name="launcher", daemon=True).start()
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # then its store was there before this process
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        try:
            socket.create_connection(place, timeout=60).close()
        except OSError as error:
            raise TrainingError(f"{GONE} (nothing answers at {place[0]}:{place[1]}: {error.strerror})") from error


def _look_for_launcher() -> None:
    while os.getppid() == _LAUNCHER:
        time.sleep(1.0)
    if os.environ.get("RANK") == "0":
        print(TrainingError(GONE).line(), file=sys.stderr, flush=True)
    os._exit(TrainingError.exit_status)  # the main thread may be waiting for the other ranks


@contextmanager
def said_once() -> Iterator[None]:
    """Around what all processes of a machine come to alike before they know each other, such as a fault of a run file.

    The first raises its error at once, at which the launcher ends the others; one that is not ended has its own.
    """
    try:
        yield
    except KosmosError:
        if os.environ.get("LOCAL_RANK", "0") != "0":
            time.sleep(OTHERS_WAIT_S)
        raise


def launched_here() -> int:
    """Processes that ``--nproc`` has started; 1 where another launcher did, or none."""
    return int(os.environ.get(_NPROC, "1"))


def apart(world_size: int) -> str | None:
    """A warning where srun has started several tasks, each of which is a run of its own; else None.

    Args:
        world_size: processes of this run.
    """
    tasks = os.environ.get(_TASKS, "")
    if not tasks.isdecimal() or int(tasks) < 2 or world_size != launched_here():
        return None
    return (
        f"srun has started {tasks} tasks ({_TASKS}), and each trains a run of its own: kosmos takes no ranks from "
        "Slurm. If they are to share one, start them with 'kosmos launch slurm', or torchrun in one task a node"
    )


def is_launched() -> bool:
    """Whether this process is one of several already."""
    return "LOCAL_RANK" in os.environ
