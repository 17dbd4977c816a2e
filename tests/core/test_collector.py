"""Commands start without Python's garbage collector, and go on with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support import ticks
from support.command import SMALL, install_plugin

COMMANDS = """
import gc, sys
from kosmos.__main__ import main
from kosmos import collector

seen = []
COMMANDS = (
    ["train", "--output", "run", *sys.argv[1:]], ["eval", "run"], ["export", "run", "file.safetensors"],
    ["export", "run", "model", "--for", "transformers"], ["plan"], ["explain", "lion"], ["plugins"],
    ["train", "--nonsense"],
)
for arguments in COMMANDS:
    sys.argv = ["kosmos", *arguments]
    status = main()
    seen.append((status, gc.isenabled(), gc.get_freeze_count() > 0))
    gc.enable()
    gc.unfreeze()
    collector._paused.clear()
print(seen)
"""


def test_it_collects_again_once_a_command_has_started(tmp_path: Path) -> None:
    site = install_plugin(tmp_path / "site", "ticks", None, module=ticks.__name__)
    path = [str(site), *filter(None, sys.path)]
    options = ["--modalities", "ticks", *map(str, SMALL), "--steps", "1"]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *options], cwd=tmp_path, env={"PYTHONPATH": ":".join(path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    seen = done.stdout.splitlines()[-1]
    # A command that is refused ends, and one that imports little never pauses it.
    assert seen == str([*[(0, True, True)] * 6, (0, True, False), (2, False, False)]), done.stderr
