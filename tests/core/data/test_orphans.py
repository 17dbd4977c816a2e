"""A worker at which nobody can look any more: its trainer was killed while a decoder hung."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.command import environment

TRAINER = """
import sys
from kosmos.data.feeder import open_feeder
from support.feeds import feed_of

fates = {("decode", row): f"hang unless {sys.argv[1]}" for row in range(40)}
feeder = open_feeder(feed_of(fates=fates), range(2), workers=1)
print(feeder.workers[0].process.pid, flush=True)
feeder.next_step()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone ends a process with its parent")
def test_a_worker_that_hangs_ends_with_its_trainer(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRAINER, str(tmp_path / "hangs")]
    trainer = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    worker = Path("/proc", trainer.stdout.readline().strip())
    begun = time.monotonic() + 60
    while not (tmp_path / "hangs").exists() and time.monotonic() < begun:
        time.sleep(0.05)
    time.sleep(0.2)
    assert (tmp_path / "hangs").exists() and worker.exists()
    trainer.kill()
    trainer.wait()
    end = time.monotonic() + 10
    while (left := worker.exists()) and time.monotonic() < end:
        time.sleep(0.05)
    if left:
        os.kill(int(worker.name), signal.SIGKILL)
    assert not left
    trainer.stdout.close()
