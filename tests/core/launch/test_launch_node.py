"""What a node starts its ranks by: signals reach them, and its exit status is theirs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kosmos.errors import Interrupted
from kosmos.runtime import processes
from kosmos.runtime.launch import exit_status
from kosmos.runtime.processes import any_runs, children
from support.command import Started, lines_in

STOPPED = Interrupted.exit_status


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([STOPPED, STOPPED], STOPPED),
        ([STOPPED, -signal.SIGTERM], STOPPED),
        ([-signal.SIGTERM, 4], 4),
        ([STOPPED, 4], 4),
        ([-signal.SIGKILL], 137),
        ([], 1),
    ],
)
def test_the_exit_status_says_how_the_ranks_ended(ranks: list[int], expected: int) -> None:
    assert exit_status(ranks) == expected


@pytest.fixture(params=["proc", "ps"])
def told_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Linux, and as on a system that has no ``/proc``."""
    if request.param == "ps":
        if shutil.which("ps") is None:
            pytest.skip("ps is not installed")
        monkeypatch.setattr(processes, "PROC", Path("/nowhere"))


@pytest.mark.usefixtures("told_by")
def test_children_are_those_that_run() -> None:
    before = set(children(os.getpid()))  # other tests leave helpers of Python's behind
    with subprocess.Popen(["sleep", "60"]) as child:
        assert set(children(os.getpid())) - before == {child.pid}
        assert any_runs([2**22 + 1, child.pid])
        child.kill()
        end = time.monotonic() + 10
        while any_runs([child.pid]) and time.monotonic() < end:  # nobody has asked about it
            time.sleep(0.01)
        assert not any_runs([child.pid])
        assert set(children(os.getpid())) == before


def node(*command: str) -> Started:
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if Path("/sys/class/net/lo").exists() else {}
    options = ["--standalone", "--nproc-per-node=2", "--max-restarts=0", "--no-python"]
    return Started(program=[sys.executable, "-m", "kosmos.launch.node", *options, *command], **loopback)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_reaches_every_rank_and_the_node_waits_for_them(number: signal.Signals, tmp_path: Path) -> None:
    rank = f"trap 'sleep 0.5; echo saved >> {tmp_path}/saved; exit {STOPPED}' TERM; echo >> {tmp_path}/up; "
    run = node("bash", "-c", rank + "while :; do sleep 0.05; done")
    run.wait_for(lambda: lines_in(tmp_path / "up") == 2)
    run.send(number)
    status, said = run.end()
    assert status == STOPPED, said
    assert lines_in(tmp_path / "saved") == 2
    assert run.processes() == []


def test_a_rank_that_fails_gives_its_status_and_ends_the_others() -> None:
    run = node("bash", "-c", "if [ $RANK = 1 ]; then exit 3; fi; exec sleep 60")
    status, said = run.end()
    assert status == 3, said
    assert run.processes() == []


def test_ranks_that_end_well_end_the_node_well() -> None:
    status, said = node("true").end()
    assert status == 0, said
