"""The file of ``kosmos launch slurm`` on a real Slurm: two of three nodes, each with its own network and name."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command import SMALL, TESTS, kosmos, lines_in
from support.runs import rows_of
from support.slurm_cluster import NODES, Cluster, down, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("KOSMOS_TEST_SLURM") != "1", reason="minutes long and as root: nox -s slurm"),
]
FIELDS = (
    *SMALL, "data.lanes=2", "data.workers=0", "checkpoint.every_steps=10", "evaluate.max_documents=4",
)  # fmt: skip
SETUP = f'export PATH="{Path(sys.executable).parent}:$PATH" PYTHONPATH={TESTS} GLOO_SOCKET_IFNAME=eth0'


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if (why := missing()) is not None:
        pytest.skip(why)
    made = Cluster()
    try:
        made.up()
        yield made
    finally:
        down()


class Job:
    """A training on two nodes that was submitted."""

    def __init__(self, cluster: Cluster, folder: Path, steps: int, *options: str) -> None:
        self.cluster, self.steps, self.output, self.log = cluster, steps, folder / "run", folder / "job.log"
        (folder / "small.yaml").write_text("modalities: [image]\n")
        self.fields = (*FIELDS, f"train.steps={steps}")
        shape = ("--nodes", 2, "--gpus-per-node", 0, "--procs-per-node", 1, "--cpus-per-node", 1, "--setup", SETUP)
        files = ("--run-output", self.output, "--output", folder / "job.sh")
        written = kosmos("launch", "slurm", folder / "small.yaml", *shape, *files, *options, *self.fields, cwd=folder)
        assert written.returncode == 0, written.stderr
        told = cluster.run("sbatch", "--parsable", f"--output={self.log}", "job.sh", folder=folder)
        self.number = told.strip()

    def state(self) -> str:
        return self.cluster.state(self.number)

    def wait_for_steps(self, steps: int) -> None:
        self.cluster.wait_for(lambda: lines_in(self.output / "metrics.jsonl") >= steps, at_most_s=180)

    def wait_for_state(self, *states: str, at_most_s: float = 120) -> None:
        self.cluster.wait_for(lambda: self.state() in states, at_most_s=at_most_s)

    def rank_on(self, node: str) -> int:
        """The process of the rank on a node."""
        for process in self.cluster.run("ip", "netns", "pids", node).split():
            command = Path(f"/proc/{process}/cmdline")
            words = command.read_bytes().split(b"\0") if command.exists() else []
            if b"train" in words and b"kosmos" in words:
                return int(process)
        raise AssertionError(f"no rank on {node}")

    def check_steps(self) -> None:
        """Each was taken once, in their order."""
        assert self.state() == "COMPLETED", self.log.read_text()
        assert [row["step"] for row in rows_of(self.output / "metrics.jsonl")] == list(range(1, self.steps + 1))


def test_two_nodes_train_as_one_process_does(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path, 20)
    job.wait_for_state("COMPLETED", "FAILED", at_most_s=180)
    job.check_steps()
    alone = kosmos("train", "--modalities", "image", "--output", tmp_path / "alone", *job.fields, timeout=300)
    assert alone.returncode == 0, alone.stderr
    for row, one in zip(rows_of(job.output / "metrics.jsonl"), rows_of(tmp_path / "alone/metrics.jsonl"), strict=True):
        assert row["documents"] == one["documents"]
        assert row["loss"] == pytest.approx(one["loss"], abs=1e-5)


def test_a_killed_rank_is_tried_again_in_the_same_allocation(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path, 150)
    job.wait_for_steps(25)
    os.kill(job.rank_on(NODES[1]), signal.SIGKILL)
    job.wait_for_state("COMPLETED", "FAILED", at_most_s=240)
    job.check_steps()
    assert "trying again" in job.log.read_text()


def test_a_cancelled_job_saves_and_does_not_queue_itself_again(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path, 5000)
    job.wait_for_steps(15)
    cluster.run("scancel", job.number)
    job.wait_for_state("CANCELLED", "PENDING", "FAILED")
    assert job.state() == "CANCELLED"
    done = rows_of(job.output / "metrics.jsonl")[-1]["step"]
    assert (job.output / "checkpoints" / f"step-{done:08d}").is_dir()
    assert "does not queue itself again" in job.log.read_text()


def test_a_notice_of_the_time_limit_saves_and_queues_the_job_again(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path, 5000, "--time", "0:02:00", "--notice-s", "60")
    job.wait_for_steps(5)
    job.wait_for_state("PENDING", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", at_most_s=180)
    assert job.state() == "PENDING", job.log.read_text()
    done = rows_of(job.output / "metrics.jsonl")[-1]["step"]
    assert (job.output / "checkpoints" / f"step-{done:08d}").is_dir()
    cluster.run("scancel", job.number)


def test_a_node_that_is_cut_off_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path, 400)
    job.wait_for_steps(25)
    cluster.cable(NODES[1], plugged=False)
    try:
        job.wait_for_state("PENDING", "FAILED", "COMPLETED")
        job.wait_for_state("COMPLETED", "FAILED", at_most_s=400)  # Slurm waits for two minutes before it begins again
    finally:
        cluster.cable(NODES[1], plugged=True)
    job.check_steps()
    assert "going on from step" in job.log.read_text()
