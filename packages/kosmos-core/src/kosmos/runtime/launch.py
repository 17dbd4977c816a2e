"""Start a command in several processes on this machine: torchrun's engine without its noise."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Sequence

from kosmos.errors import ConfigError, Interrupted, TrainingError

_LAUNCHER = os.getppid()
"""As early as can be: it may be killed at any time."""
GONE = "the launcher of the run is gone; all ranks end with it"


def launch(processes: int, arguments: Sequence[str]) -> int:
    """Run ``kosmos ARGUMENTS`` in so many processes that know each other, and wait for them.

    Where one fails the others are stopped.

    Returns:
        The exit status of the first that failed, or 0.

    Raises:
        ConfigError: the number is not positive.
    """
    if processes < 1:
        raise ConfigError(f"--nproc {processes}: expected the number of processes, 1 or more")
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.ERROR)  # the processes say what is wrong
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=processes, run_id=uuid.uuid4().hex,
        rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.2,
    )  # fmt: skip
    try:
        elastic_launch(config, sys.executable)("-m", "kosmos", *arguments)
    except ChildFailedError as failed:
        _, first = failed.get_first_failure()
        return first.exitcode if first.exitcode > 0 else 128 - first.exitcode
    except SignalException:
        return Interrupted.exit_status
    return 0


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


def is_launched() -> bool:
    """Whether this process is one of several already."""
    return "LOCAL_RANK" in os.environ
