"""Several ranks of one program, which share what it takes seconds to import.

    python forked.py RANKS MODULE,MODULE PROGRAM.py ARGUMENT ...

As torchrun on one machine, with its variables and its store, but each rank is a fork of a process that has imported
torch, Kosmos and the modules. The first that fails ends all, and its status is that of this process.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

from kosmos.runtime import launch

SHARED = ("torch._dynamo", "kosmos.train.run", "kosmos.train.progress", "support.runs")
"""What nearly all programs need. None of these starts a thread, which a fork would lack."""


def import_shared(modules: str) -> None:
    """Before the forks; what this leaves the garbage collector of none of them looks through."""
    gc.disable()
    for module in (*SHARED, *filter(None, modules.split(","))):
        import_module(module)
    gc.freeze()
    gc.enable()


def run(program: str, arguments: list[str]) -> None:
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


def status_of(act: Callable[[], None]) -> int:
    """The exit status of a program that does this, as Python has it."""
    try:
        act()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def start(rank: int, act: Callable[[], None]) -> int:
    """The number of its process."""
    if (process := os.fork()) == 0:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        launch._LAUNCHER = os.getppid()  # else that of this process, which a rank would miss
        sys.exit(status_of(act))  # with what is to happen at the end of a process
    return process


def wait_for(running: set[int]) -> int:
    """Until all have ended: 0, or the status of the first that fails. The others are killed then."""
    while running:
        process, ended = os.wait()
        running.discard(process)
        if ended:
            for other in running:
                with suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
            return os.waitstatus_to_exitcode(ended) % 256
    return 0


def main(ranks: int, modules: str, program: str, *arguments: str) -> int:
    import_shared(modules)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
    }  # fmt: skip

    def act() -> None:
        listening.close()
        run(program, list(arguments))

    running = {start(rank, act) for rank in range(ranks)}
    from torch.distributed import TCPStore

    # Its threads begin behind the last fork.
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    status = wait_for(running)
    del store
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
