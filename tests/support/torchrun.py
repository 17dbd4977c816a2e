"""Several processes under torchrun, on this machine, with gloo over the loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support import forked as launcher
from support.command import Started

LLAMA = ("transformers.models.llama.modeling_llama",)
"""What ranks import that train a Llama of transformers'."""
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if Path("/sys/class/net/lo").exists() else {}


def torchrun(
    nproc: int, program: Sequence[object], *, path: Sequence[Path] = (), restarts: int = 0, **variables: str
) -> Started:
    """``program`` (``-m kosmos ...`` or a script with its arguments) in ``nproc`` processes.

    Args:
        path: in front of what is importable.
        restarts: times that all are started again where one fails.
        variables: of the environment.
    """
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)]
    launcher += ["--max-restarts", str(restarts)]
    return Started(path=path, program=[*launcher, *map(str, program)], **{**LOOPBACK, **variables})


def forked(nproc: int, program: Sequence[object], *, imports: Sequence[str] = (), **variables: str) -> Started:
    """As ``torchrun``, where the launcher is not what is tested: ``program``, a script, is run by forks of a process.

    Each start of Python with torch and Kosmos takes seconds.

    Args:
        imports: what else the ranks need that takes long to import.
        variables: of the environment.
    """
    command = [sys.executable, launcher.__file__, str(nproc), ",".join(imports), *map(str, program)]
    return Started(program=command, **{**LOOPBACK, **variables})


def done(run: Started, *, at_most_s: float = 120) -> str:
    """What it printed. Fails with what it said where its status is not 0; what runs longer is killed, all of it."""
    try:
        printed, said = run.process.communicate(timeout=at_most_s)
    except subprocess.TimeoutExpired:
        for process in run.processes():
            os.kill(process, signal.SIGKILL)
        printed, said = run.process.communicate()
        raise AssertionError(f"not done after {at_most_s:g} s:\n{printed}\n{said}") from None
    assert run.process.returncode == 0, said
    return printed
