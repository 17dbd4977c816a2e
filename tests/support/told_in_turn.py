"""Run as each of the ranks of a job: several ``kosmos train`` in turn, each of which all ranks begin and end together.

    RANK=0 WORLD_SIZE=2 ... told_in_turn.py LIST.json

Each entry of the list has ``port``, a file in which the first rank leaves the port on which they meet, ``folders``, in
which each of them runs, and ``told``, what each is told. Prints a JSON line for each: the exit status, and what was
said on standard error.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import socket
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from kosmos import collector
from kosmos.cli import main

CAP_S = 60
"""A command that takes longer ends the process, with a traceback of where it hangs."""


def port(file: Path, *, is_first: bool) -> str:
    """One that is free as the case begins."""
    if is_first:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            file.with_suffix(".new").write_text(str(free.getsockname()[1]))
        file.with_suffix(".new").rename(file)
    while not file.exists():
        time.sleep(0.01)
    return file.read_text()


def run(file: str) -> None:
    rank = int(os.environ["RANK"])
    collector.pause()  # until the first step, while torch is imported
    for entry in json.loads(Path(file).read_text()):
        faulthandler.dump_traceback_later(CAP_S, exit=True)
        os.chdir(entry["folders"][rank])
        os.environ["MASTER_PORT"] = port(Path(entry["port"]), is_first=rank == 0)
        status = None
        try:
            with redirect_stderr(io.StringIO()) as said, redirect_stdout(io.StringIO()):
                status = main(["train", *map(str, entry["told"][rank])])
        finally:
            if status is None:
                print(said.getvalue(), file=sys.stderr, flush=True)
        print(json.dumps([status, said.getvalue()]), flush=True)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    run(sys.argv[1])
