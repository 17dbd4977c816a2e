"""Run as each of the ranks of a job: several ``kosmos train`` in turn, each of which all ranks begin and end together.

    RANK=0 WORLD_SIZE=2 ... told_in_turn.py LIST.json

Each entry of the list has ``port``, on which its ranks meet, ``folders``, in which each of them runs, and ``told``,
what each is told. Prints a JSON line for each: the exit status, and what was said on standard error.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from kosmos.cli import main

CAP_S = 60
"""A command that takes longer ends the process, with a traceback of where it hangs."""


def run(file: str) -> None:
    rank = int(os.environ["RANK"])
    for entry in json.loads(Path(file).read_text()):
        faulthandler.dump_traceback_later(CAP_S, exit=True)
        os.chdir(entry["folders"][rank])
        os.environ["MASTER_PORT"] = entry["port"]
        with redirect_stderr(io.StringIO()) as said, redirect_stdout(io.StringIO()):
            status = main(["train", *map(str, entry["told"][rank])])
        print(json.dumps([status, said.getvalue()]), flush=True)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    run(sys.argv[1])
