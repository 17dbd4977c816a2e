"""Two nodes, each a network namespace of its own, under torchrun's elastic agents: one is killed, or cut off."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command import SMALL, TESTS, kosmos, lines_in
from support.runs import rows_of

NAMES = ("kosmos-a", "kosmos-b")
ADDRESSES = ("10.77.31.1", "10.77.31.2")
STEPS = 120
RUN = (
    *SMALL, "--modalities", "image", f"train.steps={STEPS}", "data.lanes=2", "data.workers=0",
    "checkpoint.every_steps=10", "evaluate.max_documents=4", "train.optimizer=adamw", "train.hang_s=8",
)  # fmt: skip


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def nodes() -> Iterator[None]:
    """Two namespaces with a cable between them."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need iproute2 and root")
    _remove()  # what a session that was killed left behind
    try:
        for name in NAMES:
            ip("netns", "add", name)
        ip("link", "add", "kosmos0", "netns", NAMES[0], "type", "veth", "peer", "name", "kosmos0", "netns", NAMES[1])
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "kosmos0")
            ip("-n", name, "link", "set", "kosmos0", "up")
            ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        _remove()
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
    yield
    _remove()


def _remove() -> None:
    for name in NAMES:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def start(node: int, output: Path) -> subprocess.Popen[str]:
    """The agent of a node, in a process group of its own."""
    rendezvous = f"is_host={'true' if node == 0 else 'false'},join_timeout=60,last_call_timeout=2,timeout=60"
    agent = (
        "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "5",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{ADDRESSES[0]}:29431", "--rdzv-id", "kosmos",
        "--rdzv-conf", rendezvous, "--local-addr", ADDRESSES[node], "--monitor-interval", "0.5",
    )  # fmt: skip
    command = ("-m", "kosmos", "train", "--output", str(output), "--auto-resume", *RUN)
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "kosmos0", "PYTHONPATH": str(TESTS),
    }  # fmt: skip
    return subprocess.Popen(
        ["ip", "netns", "exec", NAMES[node], sys.executable, *agent, *command],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def wait_for_steps(output: Path, steps: int, agent: subprocess.Popen[str], *, at_most_s: float) -> float:
    """Until ``metrics.jsonl`` has so many lines; returns the seconds that it took."""
    begin = time.monotonic()
    while lines_in(output / "metrics.jsonl") < steps:
        assert agent.poll() is None, agent.communicate()[1][-3000:]
        assert time.monotonic() - begin < at_most_s, f"{lines_in(output / 'metrics.jsonl')} of {steps} steps"
        time.sleep(0.1)
    return time.monotonic() - begin


def kill(agent: subprocess.Popen[str]) -> None:
    """The agent and the ranks that it started, which have sessions of their own."""
    marks = {agent.pid}
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda p: int(p.name)):
        try:
            parent = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent in marks:
            marks.add(int(folder.name))
    for process in marks:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("KOSMOS_TEST_NODES") != "1", reason="minutes long and as root: nox -s nodes")
@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_a_run_on_two_nodes_goes_on_alone_when_one_is_gone(tmp_path: Path, nodes: None, how: str) -> None:
    alone, output = tmp_path / "alone", tmp_path / "run"
    done = kosmos("train", "--output", alone, *RUN, timeout=300)
    assert done.returncode == 0, done.stderr
    agents = [start(0, output), start(1, output)]
    try:
        wait_for_steps(output, 25, agents[0], at_most_s=120)
        if how == "killed":
            kill(agents[1])
        else:
            ip("-n", NAMES[1], "link", "set", "kosmos0", "down")
        before = lines_in(output / "metrics.jsonl")
        # The steps since the last checkpoint are taken again, so the count falls before it grows.
        took = wait_for_steps(output, before + 15, agents[0], at_most_s=90)
        assert took < 60
        _, said = agents[0].communicate(timeout=300)
        assert agents[0].returncode == 0, said[-3000:]
    finally:
        for agent in agents:
            kill(agent)
            agent.communicate()
    rows, expected = rows_of(output / "metrics.jsonl"), rows_of(alone / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    for row, one in zip(rows, expected, strict=True):
        assert row["documents"] == one["documents"]
        assert row["loss"] == pytest.approx(one["loss"], abs=1e-5)
