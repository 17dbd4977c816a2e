"""The sbatch file run as it stands, with stand-ins for Slurm's own commands: two ranks really train."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from kosmos.run_file import dump_run
from support import ticks
from support.command import Started, install_plugin, lines_in
from support.launch_shapes import Launch
from support.runs import rows_of, small_run

SRUN = '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done; exec "$@"\n'
SCONTROL = """#!/bin/bash
case "$1 $2" in
  "show hostnames") echo localhost ;;
  "show job") echo "   JobState=$JOB_STATE Reason=None" ;;
  *) echo "$@" >> "$SLURM_LOG" ;;
esac
"""


class Job:
    """A job file and the folder in which it is submitted."""

    def __init__(self, folder: Path, launch: Launch, *, steps: int, save_every: int) -> None:
        self.folder, self.output, self.log = folder, folder / "run", folder / "slurm.log"
        self.site = install_plugin(folder / "site", "ticks", None, module=ticks.__name__)
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        run_file = folder / "small.yaml"
        over = {"data": {"sources": ["ticks"]}, "train": {"steps": steps}, "checkpoint": {"every_steps": save_every}}
        run_file.write_text(dump_run(small_run(**over, evaluate={"max_documents": 4})))
        self.script = folder / "job.sh"
        cpu = ("--gpus-per-node", 0, "--procs-per-node", 2, "--run-output", self.output, "--output", self.script)
        launch("slurm", run_file, *cpu)

    def start(self, *, state: str = "RUNNING") -> Started:
        variables = {
            "JOB_STATE": state,
            "PATH": os.pathsep.join([str(self.bin), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "SLURM_JOB_ID": str(free_port() - 20000),
            "SLURM_JOB_NODELIST": "localhost",
            "SLURM_LOG": str(self.log),
            **({"GLOO_SOCKET_IFNAME": "lo"} if Path("/sys/class/net/lo").exists() else {}),
        }
        return Started(path=[self.site], program=["bash", str(self.script)], **variables)

    def steps(self) -> list[int]:
        return [row["step"] for row in rows_of(self.output / "metrics.jsonl")]

    def ranks(self, run: Started) -> list[int]:
        """The processes of the ranks."""
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in run.processes()}
        return [pid for pid, words in commands.items() if b"train" in words and b"kosmos" in words]


def free_port() -> int:
    """A port that the job file's rule can give."""
    for port in range(20000, 40000, 17):
        with socket.socket() as candidate:
            if candidate.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no free port")


@pytest.mark.slow
def test_an_expiring_allocation_saves_queues_itself_again_and_goes_on(tmp_path: Path, launch: Launch) -> None:
    job = Job(tmp_path, launch, steps=60, save_every=1000)
    first = job.start()
    first.wait_for(lambda: lines_in(job.output / "metrics.jsonl") > 2)
    first.send(signal.SIGUSR1)
    status, said = first.end()
    assert status == 0, said
    assert "queued again to go on" in said
    assert job.log.read_text().startswith("requeue ")
    done = job.steps()[-1]
    assert [path.name for path in (job.output / "checkpoints").glob("step-*")] == [f"step-{done:08d}"]
    status, said = job.start().end(at_most_s=120)
    assert status == 0, said
    assert f"going on from step {done} " in said
    assert job.steps() == list(range(1, 61))


@pytest.mark.slow
def test_a_cancelled_job_saves_and_does_not_queue_itself_again(tmp_path: Path, launch: Launch) -> None:
    job = Job(tmp_path, launch, steps=5000, save_every=5000)
    run = job.start(state="COMPLETING")
    run.wait_for(lambda: lines_in(job.output / "metrics.jsonl") > 2)
    run.send(signal.SIGTERM)
    status, said = run.end()
    assert status == 130, said
    assert "does not queue itself again" in said
    assert not job.log.exists()
    assert [path.name for path in (job.output / "checkpoints").glob("step-*")] == [f"step-{job.steps()[-1]:08d}"]


@pytest.mark.slow
def test_a_killed_rank_is_tried_again_in_the_same_allocation(tmp_path: Path, launch: Launch) -> None:
    job = Job(tmp_path, launch, steps=60, save_every=10)
    run = job.start()
    run.wait_for(lambda: any((job.output / "checkpoints").glob("step-*")))
    os.kill(job.ranks(run)[-1], signal.SIGKILL)
    status, said = run.end(at_most_s=150)
    assert status == 0, said
    assert ": trying again" in said
    assert "going on from step " in said
    assert job.steps() == list(range(1, 61))
    assert not job.log.exists()


@pytest.mark.slow
def test_a_mistake_in_the_run_file_is_not_tried_again(tmp_path: Path, launch: Launch) -> None:
    job = Job(tmp_path, launch, steps=2, save_every=2)
    (tmp_path / "small.yaml").write_text("train: {steps: many}\n")
    status, said = job.start().end()
    assert status == 2, said
    assert "another try would end like this one" in said
    assert "trying again" not in said
