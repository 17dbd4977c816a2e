"""However a rank ends, all do: with one status, and the cause said once."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kosmos.checkpoint.folder import committed, verify
from kosmos.compose import compose, make_feed
from kosmos.run_sources import open_sources
from support import ticks
from support.command import SMALL, Started, install_plugin, lines_in
from support.ranks import End, train_in_turn
from support.runs import rows_of, small_run, ticks_registry
from support.torchrun import LOOPBACK, torchrun

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")

STEPS = 2000
RUN = (
    "--modalities",
    "ticks",
    *SMALL,
    "data.lanes=2",
    "data.workers=0",
    f"train.steps={STEPS}",
    "evaluate.max_documents=4",
)

TOO_FAST = ("train.optimizer=lion", "train.warmup_steps=0")
RATES = {"ddp": "train.learning_rate=1e38", "fsdp": "train.learning_rate=1e39"}
"""Behind the first step products are too large for fp32, or weights are."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return install_plugin(tmp_path / "site", "ticks", None, module=ticks.__name__)


def two_ranks(site: Path, output: Path, *more: object, **variables: str) -> Started:
    return Started("train", "--nproc", 2, "--output", output, *RUN, *more, path=[site], **LOOPBACK, **variables)


def source(**options: object) -> str:
    return f"data.sources=[{{path: ticks, options: {options}}}]"


def pid_of(run: Started, rank: int) -> int:
    def variables(process: int) -> list[bytes]:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")

    (found,) = (p for p in run.processes() if f"RANK={rank}".encode() in variables(p))
    return found


def errors(said: str) -> list[str]:
    assert "Traceback" not in said, said
    return [line for line in said.splitlines() if line.startswith("error[")]


def wait_until_gone(run: Started) -> None:
    end = time.monotonic() + 30
    while (left := run.processes()) and time.monotonic() < end:
        time.sleep(0.05)
    for process in left:
        os.kill(process, signal.SIGKILL)
    run.process.communicate()
    assert not left, f"processes {left} were left behind"


def row_of_lane(lane: int) -> int:
    """The row that a lane reads first."""
    config = small_run(data={"lanes": 2})
    registry = ticks_registry()
    return make_feed(compose(config, registry), open_sources(config, registry, "train")).mixture.row(0, lane)


@pytest.fixture(scope="module", autouse=True)
def suspended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Two ranks, the first suspended. The tests before take the time in which it is waited for: torch gives it 30 s."""
    home = tmp_path_factory.mktemp("suspended")
    site = install_plugin(home / "site", "ticks", None, module=ticks.__name__)
    run = two_ranks(site, home / "run", "train.hang_s=8")
    run.wait_for(lambda: lines_in(home / "run" / "metrics.jsonl") > 2)
    os.kill(pid_of(run, 0), signal.SIGSTOP)
    yield run
    for process in run.processes():
        os.kill(process, signal.SIGKILL)


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, list[End]]]:
    """Cases that two ranks take in turn, by their names: a folder of each, and how the ranks ended."""
    home = tmp_path_factory.mktemp("refused")
    site = install_plugin(home / "site", "ticks", None, module=ticks.__name__)
    options = {
        "source": source(refused=[row_of_lane(0)]),
        "optimizer": "train.optimizer={name: lion, betas: [2, 3]}",
        "strategy": "parallel={tensor: 2, strategy: ddp}",
        "ledger": source(broken=[row_of_lane(1)]),
    }
    wrong = {kind: (f"parallel={{strategy: {kind}}}", *TOO_FAST, rate) for kind, rate in RATES.items()}
    wrong["saved"] = (*wrong["fsdp"], "checkpoint.every_steps=1", "guard.non_finite=skip")
    for name in ("optimizer", "strategy"):
        (home / name).mkdir()
        (home / name / "note.txt").write_text("mine")
    (home / "ledger" / "quarantine.jsonl").mkdir(parents=True)
    told = {name: (option,) for name, option in options.items()} | wrong
    ends = train_in_turn(
        home, {name: [("--output", home / name, *RUN, *more)] * 2 for name, more in told.items()}, path=[site]
    )
    return lambda name: (home / name, ends[name])


def said_once(ends: list[End], status: int) -> str:
    """The one error of the ranks, which all end with this status."""
    (line,) = [line for _, said in ends for line in errors(said)]
    assert [found for found, _ in ends] == [status] * len(ends)
    return line


def test_an_error_of_the_source_on_the_second_rank_ends_both_and_is_said_once(tmp_path: Path, site: Path) -> None:
    row = row_of_lane(1)
    status, said = two_ranks(site, tmp_path / "run", source(refused=[row])).end(at_most_s=90)
    assert errors(said) == [f"error[data]: ticks: the disk of row {row} is gone"]
    assert status == 3


def test_an_error_of_the_source_on_the_first_rank_ends_both_and_is_said_once(
    refused: Callable[[str], tuple[Path, list[End]]],
) -> None:
    _, ends = refused("source")
    where = f"(rank 0 alone, on {socket.gethostname()})"
    assert said_once(ends, 3) == f"error[data]: ticks: the disk of row {row_of_lane(0)} is gone {where}"


@pytest.mark.parametrize(
    ("strategy", "whence"),
    [("ddp", r"streams\.ticks\.connector: .* what it gives is not finite"), ("fsdp", r"the weight \S+ is not finite")],
)
def test_ranks_whose_loss_is_no_number_say_once_where_it_came_from(
    refused: Callable[[str], tuple[Path, list[End]]], strategy: str, whence: str
) -> None:
    _, ends = refused(strategy)
    line = said_once(ends, 4)
    assert re.match(
        rf"error\[training\]: step 2: loss nan, gradient norm nan: not finite \({whence}\); parameters", line
    )


def test_ranks_whose_shards_are_broken_save_none_of_them_and_say_so_once(
    refused: Callable[[str], tuple[Path, list[End]]],
) -> None:
    output, ends = refused("saved")
    line = said_once(ends, 4)
    assert re.match(r"error\[training\]: guard: step 1: the weight \S+ is not finite after the update, so it is", line)
    assert committed(output / "checkpoints") == []


@pytest.mark.parametrize(
    ("case", "line"),
    [
        ("optimizer", "error[config]: train.optimizer.betas: expected two numbers from 0 to 1"),
        ("strategy", "error[config]: parallel.tensor: goes with strategy fsdp, not with ddp"),
    ],
)
def test_ranks_that_cannot_begin_say_why_once_and_leave_nothing(
    refused: Callable[[str], tuple[Path, list[End]]], case: str, line: str
) -> None:
    output, ends = refused(case)
    assert said_once(ends, 2).startswith(line)
    assert [file.name for file in output.iterdir()] == ["note.txt"]


def test_a_typo_is_said_once_though_every_rank_reads_it(tmp_path: Path) -> None:
    program = ["-m", "kosmos", "train", "--output", tmp_path / "run", "trian.steps=3"]
    status, said = torchrun(2, program).end(at_most_s=60)
    assert said.count("error[config]: command line: trian: unknown field; did you mean train?") == 1
    assert status != 0


def test_a_ledger_that_cannot_be_written_ends_both_and_is_said_once(
    refused: Callable[[str], tuple[Path, list[End]]],
) -> None:
    output, ends = refused("ledger")
    line = said_once(ends, 4)
    assert str(output / "quarantine.jsonl") in line and "Is a directory" in line


NAMED_NOWHERE = """
import socket

socket.getfqdn = lambda name="": "laptop.nowhere.invalid"
"""


def test_sigterm_at_one_rank_stops_all_at_the_same_step_with_a_checkpoint(tmp_path: Path, site: Path) -> None:
    """On a machine whose name no resolver knows, as many laptops': the ranks find each other without it."""
    (site / "sitecustomize.py").write_text(NAMED_NOWHERE)
    output = tmp_path / "run"
    run = two_ranks(site, output)
    run.wait_for(lambda: lines_in(output / "metrics.jsonl") >= 3)
    os.kill(pid_of(run, 1), signal.SIGTERM)
    status, said = run.end(at_most_s=60)
    step = lines_in(output / "metrics.jsonl")
    assert errors(said) == [
        f"error[interrupted]: stopped at step {step} of {STEPS} (SIGTERM), all saved; "
        f"go on with: kosmos train --resume {output} --nproc 2"
    ]
    assert status == 130
    newest = committed(output / "checkpoints")[0]
    assert newest.name == f"step-{step:08d}"
    assert verify(newest) is None
    wait_until_gone(run)


def test_two_ranks_whose_time_is_over_end_after_the_same_step_with_all_saved(tmp_path: Path, site: Path) -> None:
    output = tmp_path / "run"
    status, said = two_ranks(site, output, "train.max_time=5s").end(at_most_s=90)
    assert status == 0, said
    (step,) = {int(found) for found in re.findall(rf"stopped at step (\d+) of {STEPS}, all saved", said)}
    assert rows_of(output / "metrics.jsonl")[-1]["step"] == step
    assert [folder.name for folder in committed(output / "checkpoints")][:1] == [f"step-{step:08d}"]
    assert said.count("train.max_time 5s is over") == 1


def test_ctrl_c_at_the_launcher_of_two_ranks_saves_and_a_second_one_ends_at_once(tmp_path: Path, site: Path) -> None:
    output = tmp_path / "run"
    run = two_ranks(site, output)
    run.wait_for(lambda: lines_in(output / "metrics.jsonl") >= 3)
    run.send(signal.SIGINT)
    status, said = run.end(at_most_s=60)
    step = lines_in(output / "metrics.jsonl")
    assert errors(said) == [
        f"error[interrupted]: stopped at step {step} of {STEPS} (SIGINT), all saved; "
        f"go on with: kosmos train --resume {output} --nproc 2"
    ]
    assert status == 130
    again = Started("train", "--nproc", 2, "--resume", output, "--epochs", 5000, path=[site], **LOOPBACK)
    again.wait_for(lambda: lines_in(output / "metrics.jsonl") >= step + 3)
    again.send(signal.SIGINT)
    again.send(signal.SIGINT)
    status, said = again.end(at_most_s=30)
    assert status == 130, said
    assert said.count("5000 epochs of 200 documents: ") == 1  # counted by one rank, for both
    wait_until_gone(again)


BEFORE_THE_FIRST_RANK = """
import os, signal

install = signal.signal

def installed(number, handler):
    old = install(number, handler)
    if number == signal.SIGUSR1 and getattr(handler, "__name__", "") == "hand_on":
        os.kill(os.getpid(), signal.SIGINT)
    return old

signal.signal = installed
"""
SIGNAL_AT_THE_LAUNCHER = """
import os, signal, time
from kosmos import DatasetSpec, hookimpl

KOSMOS_API = 1

@hookimpl
def kosmos_datasets():
    yield DatasetSpec(name="slow", target="acme_slow:slow", summary="Never opens.")

def slow(request):
    os.kill(os.getppid(), getattr(signal, os.environ["SENT"]))
    time.sleep(100)
"""


def test_ctrl_c_before_the_first_rank_has_started_is_not_lost(tmp_path: Path, site: Path) -> None:
    (site / "sitecustomize.py").write_text(BEFORE_THE_FIRST_RANK)
    status, said = two_ranks(site, tmp_path / "run").end(at_most_s=60)
    assert said == "error[interrupted]: stopped (SIGINT) before it began: nothing was saved\n"
    assert status == 130
    assert not (tmp_path / "run").exists()


NO_PROC = """
from pathlib import Path
from kosmos.runtime import processes

processes.PROC = Path("/nowhere")
"""


@pytest.mark.parametrize(("name", "system"), [("SIGTERM", ""), ("SIGUSR1", NO_PROC)], ids=["SIGTERM", "SIGUSR1, ps"])
def test_a_signal_that_kills_ranks_as_they_start_is_told_by_the_launcher(
    tmp_path: Path, site: Path, name: str, system: str
) -> None:
    """On a system without ``/proc``, such as macOS, too."""
    if system and shutil.which("ps") is None:
        pytest.skip("ps is not installed")
    (site / "sitecustomize.py").write_text(system)
    install_plugin(site, "slow", SIGNAL_AT_THE_LAUNCHER)
    status, said = two_ranks(site, tmp_path / "run", "--data", "slow", SENT=name).end(at_most_s=60)
    line = f"stopped ({name}) before it began, or as it ended: what was saved stays"
    assert errors(said) == [f"error[interrupted]: {line}"]
    assert status == 130


RANK_1_FAILS_AT_THE_SECOND = """
import os, pathlib, signal

install = signal.signal
told = []

def note(number, frame):
    told.append(number)
    pathlib.Path(os.environ["NOTES"], os.environ["RANK"]).touch()
    if os.environ["RANK"] == "1" and len(told) == 2:
        os._exit(1)

def installed(number, handler):
    ours = number == signal.SIGINT and callable(handler) and "RANK" in os.environ
    return install(number, note if ours else handler)

signal.signal = installed
"""


def test_a_second_ctrl_c_is_a_stop_though_a_rank_fails_of_it(tmp_path: Path, site: Path) -> None:
    """As a rank does that finds its peer gone before it is told itself. Neither stops at the first here."""
    (site / "sitecustomize.py").write_text(RANK_1_FAILS_AT_THE_SECOND)
    notes = tmp_path / "notes"
    notes.mkdir()
    run = two_ranks(site, tmp_path / "run", NOTES=str(notes))
    run.wait_for(lambda: lines_in(tmp_path / "run" / "metrics.jsonl") >= 3)
    run.send(signal.SIGINT)
    run.wait_for(lambda: len(list(notes.iterdir())) == 2)
    run.send(signal.SIGINT)
    status, said = run.end(at_most_s=60)
    assert status == 130, said
    wait_until_gone(run)


def test_ranks_whose_launcher_is_killed_end_and_the_run_can_go_on(tmp_path: Path, site: Path) -> None:
    output = tmp_path / "run"
    run = two_ranks(site, output, "checkpoint.every_steps=4")
    run.wait_for(lambda: lines_in(output / "metrics.jsonl") >= 6)
    run.send(signal.SIGKILL)
    wait_until_gone(run)
    assert lines_in(output / "metrics.jsonl") < STEPS
    assert all(verify(checkpoint) is None for checkpoint in committed(output / "checkpoints"))


def test_a_rank_that_is_killed_is_said_to_be(tmp_path: Path, site: Path) -> None:
    run = Started("train", *RUN, "--nproc", 2, "train.steps=100000", "--output", tmp_path / "run", path=[site])
    run.wait_for(lambda: lines_in(tmp_path / "run" / "metrics.jsonl") >= 3)
    os.kill(pid_of(run, 1), signal.SIGKILL)
    status, said = run.end(at_most_s=90)
    assert status in (137, 4), said  # 4 where the other has ended too before the launcher looks, every 0.2 s
    line = "error[training]: rank 1 was killed (SIGKILL): memory may have run out, or somebody has ended it"
    assert line in said and "error[internal]" not in said, said


def test_ranks_that_are_started_again_and_again_go_on_to_the_end(tmp_path: Path, site: Path) -> None:
    """torchrun keeps what the ranks before have left in its store."""
    output, steps = tmp_path / "run", 60
    options = (*RUN, f"train.steps={steps}", "checkpoint.every_steps=5", "--output", output, "--auto-resume")
    run = torchrun(2, ["-m", "kosmos", "train", *options], path=[site], restarts=2)
    for begun in (7, 17):
        run.wait_for(lambda begun=begun: lines_in(output / "metrics.jsonl") >= begun)
        os.kill(pid_of(run, 1), signal.SIGKILL)
    status, said = run.end(at_most_s=90)
    assert status == 0, said
    assert [row["step"] for row in rows_of(output / "metrics.jsonl")] == list(range(1, steps + 1))


def test_a_rank_that_was_suspended_is_named(suspended: Started) -> None:
    status, said = suspended.end(at_most_s=90)
    assert status == 5, said
    assert "rank 0 does not answer in " in said
