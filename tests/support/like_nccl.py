"""Run as a rank, whose exchanges by gloo are taken for those of NCCL: who leaves them or ends with them waits forever.

    like_nccl.py command ARGUMENTS...    the kosmos command
    like_nccl.py program RUN.json PORT   a program that calls ``train_model`` thrice: refused, trained (where the ranks
                                         meet anew, at PORT) and once more

So it is with NCCL where another rank is gone.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist


def wait(*_: object) -> NoReturn:
    threading.Event().wait()
    raise AssertionError


def main(how: str, *given: str) -> None:
    leave = dist.destroy_process_group
    atexit.register(wait)
    dist.get_backend_config = lambda *_: "cpu:gloo,cuda:nccl"  # type: ignore[assignment]
    dist.destroy_process_group = wait  # type: ignore[assignment]
    if how == "command":
        from kosmos.__main__ import main as command

        sys.argv[1:] = given
        sys.exit(command())
    from kosmos import make_run, train_model
    from kosmos.errors import ConfigError, TrainingError

    atexit.register(lambda: print("written at the end"))
    run = json.loads(Path(given[0]).read_text())
    dist.destroy_process_group = leave  # of a refusal, on which all ranks agree
    try:
        train_model(make_run(run, {"data": {"lanes": 3}}))
    except ConfigError as refused:
        print(refused)
    dist.destroy_process_group = wait  # type: ignore[assignment]
    os.environ["MASTER_PORT"] = given[1]  # at the first the store of the refused run may still be heard
    try:
        train_model(make_run(run))
    except TrainingError as failed:
        print(failed)
    train_model(make_run(run))


if __name__ == "__main__":
    main(*sys.argv[1:])
