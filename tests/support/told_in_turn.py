"""Several ``kosmos train`` in turn, each of which all ranks of a job begin and end together, as without a launcher.

    WORLD_SIZE=2 ... told_in_turn.py LIST.json MODULE,MODULE

The ranks are forks, as those of ``forked``. Each entry of the list has ``port``, a file in which the first rank leaves
the port on which they meet, ``folders``, in which each of them runs, and ``told``, what each is told. Beside the list
each rank writes ``ends-RANK.jsonl``, a line for each entry: the exit status, and what was said on standard error.
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
from functools import partial
from pathlib import Path

from kosmos import collector
from kosmos.cli import main
from kosmos.train import alike
from support import forked

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


def run(file: Path) -> None:
    rank = int(os.environ["RANK"])
    alike.SEEN_S = 2.0  # a folder that is not seen by then is not that of the others
    collector.pause()  # until the first step, while torch is imported
    for entry in json.loads(file.read_text()):
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
        with file.with_name(f"ends-{rank}.jsonl").open("a") as ends:
            print(json.dumps([status, said.getvalue()]), file=ends)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    forked.import_shared(sys.argv[2])
    told = partial(run, Path(sys.argv[1]))
    sys.exit(forked.wait_for({forked.start(rank, told) for rank in range(int(os.environ["WORLD_SIZE"]))}))
