"""Two processes never train in one folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kosmos import ConfigError, train_model
from kosmos.train import output
from kosmos.train.output import RunFolder
from kosmos.train.run import resume_run
from support.runs import small_run, ticks_registry

HOLD = """
import sys, time
from pathlib import Path
from kosmos.train.output import RunFolder
folder = RunFolder(Path(sys.argv[1]))
folder.hold()
print("held", flush=True)
time.sleep(600)
"""


def test_a_folder_in_which_another_process_trains_is_refused_until_that_one_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    train_model(small_run(run, train={"steps": 2}), registry=ticks_registry())
    more = {"train": {"steps": 3}}
    monkeypatch.setattr(output, "DYING_S", 0.3)
    with subprocess.Popen([sys.executable, "-c", HOLD, run], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        try:
            with pytest.raises(ConfigError, match=rf"{run}: process {other.pid} on \S+ trains here already; stop it"):
                resume_run(run, more, registry=ticks_registry())
        finally:
            other.kill()
    assert resume_run(run, more, registry=ticks_registry()).step == 3


def test_a_run_that_failed_or_ended_holds_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.hold()
    assert (tmp_path / ".in-use").read_text().startswith(f"process {os.getpid()} on ")
    folder.release()
    again = RunFolder(tmp_path)
    again.hold()
    again.release()
