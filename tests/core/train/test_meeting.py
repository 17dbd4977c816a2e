"""What processes are told in variables, and their wait for each other: told of, and ended in a line."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from kosmos import ConfigError, Reporter, TrainingError, train_model
from kosmos.runtime.launch import apart
from kosmos.runtime.meeting import meeting
from kosmos.runtime.parallel import Parallel
from support.runs import small_run, ticks_registry

ALONE = "for one process unset RANK and WORLD_SIZE"
WRONG = {
    "RANK=x": "RANK: expected a number from 0 to 0 (WORLD_SIZE is 1), got 'x'",
    "RANK=1": "RANK: expected a number from 0 to 0 (WORLD_SIZE is 1), got '1'",
    "RANK=5 WORLD_SIZE=2": "RANK: expected a number from 0 to 1 (WORLD_SIZE is 2), got '5'",
    "WORLD_SIZE=2": "RANK: expected a number from 0 to 1 (WORLD_SIZE is 2), got nothing",
    "WORLD_SIZE=-2": "WORLD_SIZE: expected a number from 1 on, got '-2'",
    "LOCAL_RANK=a": "LOCAL_RANK: expected a number from 0 on, got 'a'",
    "RANK=0 WORLD_SIZE=2": "MASTER_ADDR: expected the host of rank 0, where the processes meet, got nothing",
    "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a": "MASTER_PORT: expected a number from 1 to 65535, got nothing",
    "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=-1": "MASTER_PORT: expected a number from 1 to 65535, got '-1'",
}
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def told(monkeypatch: pytest.MonkeyPatch, variables: str) -> None:
    """That and nothing else of what processes are told."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for pair in variables.split():
        monkeypatch.setenv(*pair.split("=", 1))


@pytest.mark.parametrize(("variables", "line"), WRONG.items(), ids=WRONG)
def test_a_variable_that_says_nothing_of_use_is_named(variables, line, monkeypatch):
    told(monkeypatch, variables)
    with pytest.raises(ConfigError) as error:
        Parallel.from_environment("cpu")
    assert str(error.value) == f"{line}; {ALONE}"


@pytest.mark.parametrize("variables", ["", "RANK=0", "RANK= WORLD_SIZE=", "RANK=0 WORLD_SIZE=1"])
def test_one_process_needs_no_variables(variables, monkeypatch):
    told(monkeypatch, variables)
    assert Parallel.from_environment("cpu") == Parallel()


class Lines(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_a_task_of_srun_that_trains_a_run_of_its_own_is_warned_of_before_its_folder_is_found_taken(
    monkeypatch, tmp_path
):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.yaml").write_text("modalities: {}\n")  # that of the other task
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    seen = Lines()
    with pytest.raises(ConfigError, match="holds a run already"):
        train_model(small_run(tmp_path / "run"), registry=ticks_registry(), reporter=seen)
    [line] = seen.lines
    assert line.startswith("warning: srun has started 2 tasks (SLURM_STEP_NUM_TASKS), and each trains a run of its own")


@pytest.mark.parametrize(("tasks", "world_size", "nproc"), [("", 1, "1"), ("1", 8, "8"), ("2", 16, "1"), ("2", 2, "1")])
def test_tasks_that_a_launcher_has_told_their_ranks_are_not_apart(monkeypatch, tasks, world_size, nproc):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", tasks)
    monkeypatch.setenv("KOSMOS_NPROC", nproc)
    assert apart(world_size) is None


def test_ranks_of_each_of_several_tasks_are_apart(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    monkeypatch.setenv("KOSMOS_NPROC", "8")
    assert apart(8) is not None


def wait_for_nobody(told_after_s: float, capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The error of rank 0, which gives up after a second, and what it has said."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        pytest.raises(TrainingError) as error,
        meeting(0, 2, f"127.0.0.1:{port}", told_after_s=told_after_s),
    ):
        TCPStore("127.0.0.1", port, 2, is_master=True, timeout=timedelta(seconds=1))
    return str(error.value).replace(str(port), "PORT"), capfd.readouterr().err.replace(str(port), "PORT")


def test_a_process_that_waits_for_others_says_so_and_ends_in_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    error, said = wait_for_nobody(0.1, capfd)
    assert error.startswith("rank 0: 2 processes could not be connected at 127.0.0.1:PORT (DistStoreError: Timed out")
    assert said.splitlines()[0] == "rank 0: waiting for 2 processes to meet at 127.0.0.1:PORT"


def test_processes_that_meet_soon_say_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert "waiting" not in wait_for_nobody(60, capfd)[1]


WAITS = """
from torch.distributed import TCPStore
from kosmos.runtime.meeting import meeting
from kosmos.train.stopping import interrupted_in_words
with interrupted_in_words(), meeting(0, 2, "here", told_after_s=0.5):
    TCPStore("127.0.0.1", 0, 2, is_master=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_process_that_waits_for_others(number: signal.Signals) -> None:
    waits = subprocess.Popen([sys.executable, "-c", WAITS], stderr=subprocess.PIPE, text=True)
    try:
        assert waits.stderr is not None
        assert waits.stderr.readline() == "rank 0: waiting for 2 processes to meet at here\n"
        waits.send_signal(number)
        assert waits.wait(timeout=60) == -number
    finally:
        waits.kill()
        waits.communicate()


def test_signals_are_those_of_before_once_processes_have_met() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with meeting(0, 2, "here"):
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
