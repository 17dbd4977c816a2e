"""What a node starts its ranks by: signals reach them, and its exit status is theirs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
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


def test_a_rank_that_was_killed_is_named_with_its_machine() -> None:
    status, said = node("bash", "-c", "if [ $RANK = 1 ]; then kill -9 $BASHPID; fi; exec sleep 60").end()
    assert status == 137, said
    assert f"error[training]: rank 1 on {socket.gethostname()} was killed (SIGKILL): memory may have run out" in said


WAITS = """
import subprocess, sys, time
from kosmos.launch import unseen
unseen.LOOKS_S, unseen.LEFT_S = 0.05, 0.3
ranks = [subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({wait}); raise SystemExit({status})"],
                          start_new_session=alone) for wait, status, alone in CHILDREN]
unseen.end_where_unseen()
time.sleep(WAITED)  # as an agent that waits for another node: it asks none of its ranks
"""


@pytest.mark.parametrize(
    ("children", "expected"),
    [
        ([(0.3, 5, True), (1, 0, True)], 5),
        ([(0.3, 5, True), (2, 0, True)], 0),  # one still trains
        ([(0.1, 1, False), (2, 0, True)], 0),  # what a container has given to its first process has ended
    ],
)
def test_a_launcher_that_sees_none_of_its_ranks_end_ends_with_their_status(
    children: list[tuple[float, int, bool]], expected: int
) -> None:
    waits = WAITS.replace("CHILDREN", repr(children)).replace("WAITED", "30" if expected else "1.5")
    run = Started(program=[sys.executable, "-c", waits])
    status, said = run.end(at_most_s=30)
    assert status == expected, said
    ended = "error[training]: the launcher of this node waits for a node that does not answer" in said
    assert ended == bool(expected)


def test_nodes_that_do_not_meet_are_told_in_one_line() -> None:
    options = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    options += ["--rdzv-conf=is_host=true,join_timeout=1,last_call_timeout=1", "--no-python", "true"]
    status, said = Started(program=[sys.executable, "-m", "kosmos.launch.node", *options]).end(at_most_s=60)
    assert status == 4, said
    (line,) = (line for line in said.splitlines() if line.startswith("error"))
    assert line.startswith(f"error[training]: on {socket.gethostname()}: the nodes have not met, or the one at which")
    assert "Traceback" not in said


def test_ranks_that_end_well_end_the_node_well() -> None:
    status, said = node("true").end()
    assert status == 0, said
