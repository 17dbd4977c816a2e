"""``kosmos launch``: values that are checked, one line for each mistake, files where they are wanted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from kosmos.cli import main
from kosmos.launch import prices
from support.launch_shapes import KUBERNETES, P4D, Launch

MISTAKES = {
    ("slurm", "missing.yaml"): "missing.yaml: cannot read the run file",
    ("slurm", "mixture.yaml", "--nodes", "3"): "data.lanes: 16 lanes cannot be dealt evenly to 24 "
    "processes; set data.lanes=24, of which a step takes 24 rows, or start a number of processes that divides 16",
    ("slurm", "mixture.yaml", "parallel.tensor=3"): "parallel: 8 processes cannot be split into groups",
    ("slurm", "mixture.yaml", "train.stepz=3"): "train.stepz: unknown field; did you mean steps?",
    ("slurm", "mixture.yaml", "--nodez", "2"): "--nodez: unknown option; did you mean --nodes?",
    ("slurm", "mixture.yaml", "other.yaml"): "expected one run file, got mixture.yaml, other.yaml",
    ("slurm", "mixture.yaml", "--time", "soon"): "--time: expected MINUTES, MINUTES:SECONDS, "
    "HOURS:MINUTES:SECONDS or DAYS-HOURS[:MINUTES[:SECONDS]], got 'soon'",
    ("slurm", "mixture.yaml", "--time", "1-"): "--time: expected MINUTES, MINUTES:SECONDS, ",
    ("slurm", "mixture.yaml", "--time", "1:2:3:4"): "--time: expected MINUTES, MINUTES:SECONDS, ",
    ("slurm", "mixture.yaml", "--time", "25:61:00"): "--time 25:61:00: has 61 minutes behind hours; give 59 at most",
    ("slurm", "mixture.yaml", "--time", "1-12:75"): "--time 1-12:75: has 75 minutes behind hours; give 59 at most",
    ("slurm", "mixture.yaml", "--time", "90:60"): "--time 90:60: has 60 seconds behind minutes; give 59 at most",
    ("slurm", "mixture.yaml", "--time", "0"): "--time 0: is no limit to Slurm, and the run would not know when to stop",
    ("slurm", "mixture.yaml", "--time", "5"): "give fewer seconds than the 300 of --time 5\n",
    ("slurm", "mixture.yaml", "--time", "3:20"): "give fewer seconds than the 200 of --time 3:20\n",
    ("slurm", "mixture.yaml", "--time", "0:05:00"): "--notice-s 300: the run would stop as it begins, and be queued "
    "again without end; give fewer seconds than the 300 of --time 0:05:00",
    ("slurm", "mixture.yaml", "--partition", "a; b"): "--partition: expected a name without spaces, got 'a; b'",
    ("slurm", "mixture.yaml", "--setup", "a\nb"): "--setup: expected one line",
    ("skypilot", "mixture.yaml", 'output="r\\u2028file_mounts: {} #"'): "--output: expected one line without",
    ("kubernetes", "mixture.yaml", *KUBERNETES, "--setup", "a\x85b"): "--setup: expected one line without control",
    ("slurm", "mixture.yaml", "--run-output", "a\x0bb"): "--output: expected one line without control characters",
    ("slurm", "mixture.yaml", "--procs-per-node", "4"): "procs_per_node: 4 ranks for 8 GPUs",
    ("slurm", "mixture.yaml", "--nodes", "0"): "--nodes: Input should be greater than or equal to 1, got 0",
    ("slurm", "mixture.yaml", "--output", "mixture.yaml/job.sh"): "mixture.yaml/job.sh: cannot write",
    ("slurm", "mixture.yaml", "--output", ""): "--output: the value is empty",
    ("slurm", "mixture.yaml", "--run-output", ""): "--run-output: the value is empty",
    ("slurm", "mixture.yaml", "--run-output", "a", "output=b"): "--run-output and output=...: both are given",
    ("kubernetes", "mixture.yaml", *KUBERNETES, "--name", "Big"): "--name: expected small letters, digits and -",
    ("skypilot", "mixture.yaml", "--nodes", "2", "--bucket", "b"): "bucket: each of the 2 nodes would see a copy",
    ("skypilot", "mixture.yaml", "--volume", "v", "--bucket", "b"): "bucket: give volume or bucket, not both",
    (
        "aws-p4d",
        "mixture.yaml",
        *P4D[2:],
        "--head-subnet",
        "a",
    ): "--head-subnet: expected subnet- and hexadecimal digits",
    ("aws-p4d", "mixture.yaml", *P4D, "--storage-gib", "2000"): "storage_gib: 2000 is neither 1200 nor a multiple",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error[config]: ")
    assert said.err.count("\n") == 1
    assert MISTAKES[arguments] in said.err


def test_a_file_is_written_where_it_is_wanted_and_equals_standard_output(launch: Launch, run_file: str) -> None:
    shown = launch("slurm", run_file, "--nodes", "2")
    assert launch("slurm", run_file, "--nodes", "2", "--output", "jobs/big.sh") == ""
    assert Path("jobs/big.sh").read_text() == shown


@pytest.mark.parametrize(
    ("kind", "more", "output", "taken"),
    [
        ("slurm", (), "mixture.yaml", "mixture.yaml"),
        ("kubernetes", KUBERNETES, "job.yaml", "job.yaml"),
        ("aws-p4d", P4D, "p4d", "p4d/job.sh"),
    ],
)
def test_a_file_that_is_there_is_not_written_over(
    kind: str, more: tuple[str, ...], output: str, taken: str, run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(taken).parent.mkdir(exist_ok=True)
    with Path(taken).open("a") as mine:
        mine.write("# mine\n")
    before = Path(taken).read_text()
    assert main(["launch", kind, run_file, *more, "--output", output]) == 2
    assert capsys.readouterr().err == f"error[config]: {taken}: exists already; name another file, or remove it\n"
    assert Path(taken).read_text() == before
    assert not Path("p4d/cluster.yaml").exists()


def test_two_p4d_are_a_cluster_a_job_and_what_the_budget_buys(
    run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", "aws-p4d", run_file, *P4D, "--output", "p4d"]) == 0
    said = capsys.readouterr()
    assert sorted(path.name for path in Path("p4d").iterdir()) == ["cluster.yaml", "job.sh"]
    assert "#SBATCH --nodes=2\n" in Path("p4d/job.sh").read_text()
    budget = [line for line in said.err.splitlines() if "buys" in line]
    assert [line.split(" buys ")[1].split()[0] for line in budget] == ["4,577", "7,804", "12,964"]
    assert all(f"# {line}\n" in Path("p4d/cluster.yaml").read_text() for line in budget)


def test_hours_times_price_is_the_budget_for_any_number_of_nodes() -> None:
    for nodes in (1, 2, 5):
        for way, hours in prices.hours(1000.0, nodes).items():
            assert hours * prices.USD_PER_HOUR_OF_TWO[way] / 2 * nodes == pytest.approx(1000.0)


def test_the_run_files_own_output_and_its_fields_are_taken(launch: Launch, run_file: str) -> None:
    Path(run_file).write_text("modalities: text\ndata: {lanes: 4}\noutput: elsewhere/run\n")
    assert "export OUTPUT=elsewhere/run\n" in launch("slurm", run_file, "--gpus-per-node", "4")
    assert "export OUTPUT=here\n" in launch("slurm", run_file, "--gpus-per-node", "4", "--run-output", "here")
    assert "data.lanes=8" in launch("slurm", run_file, "data.lanes=8")
    given = launch("slurm", run_file, "--gpus-per-node", "4", "output=given/")
    assert "export OUTPUT=given\n" in given
    assert "output=" not in given.split('--output "$OUTPUT"')[1]


@pytest.mark.parametrize("how", ["above", "absolute", "a link"])
def test_a_run_file_that_skypilot_would_not_copy_is_refused(
    how: str, run_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Path(run_file).resolve()
    (tmp_path / "clone").mkdir()
    monkeypatch.chdir(tmp_path / "clone")
    Path("mine.yaml").symlink_to(whole)
    given = {"above": os.path.relpath(whole), "absolute": str(whole), "a link": "mine.yaml"}[how]
    assert main(["launch", "skypilot", given, "--nodes", "2", "--output", "task.yaml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        f"error[config]: {given}: lies outside {tmp_path / 'clone'}, and SkyPilot copies the working"
    )
    assert said.count("\n") == 1 and not Path("task.yaml").exists()
    assert main(["launch", "slurm", given, "--nodes", "2"]) == 0  # whose nodes see what this machine does


def test_the_run_file_of_a_task_is_named_as_it_is_found_in_the_copy(launch: Launch, run_file: str) -> None:
    Path("jobs").mkdir()
    Path(run_file).rename("jobs/my run.yaml")
    for given in ("jobs/my run.yaml", str(Path("jobs/my run.yaml").resolve()), "jobs/../jobs/my run.yaml"):
        task = yaml.safe_load(launch("skypilot", given))
        assert (task["workdir"], task["envs"]["RUN_FILE"]) == (".", "jobs/my run.yaml")


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("90", 5_400), ("12:00", 720), ("90:30", 5_430), ("24:00:00", 86_400), ("250:0:0", 900_000),
        ("1-12", 129_600), ("1-12:30", 131_400), ("7-00:00:01", 604_801), ("0-0:10", 600),
    ],
)  # fmt: skip
def test_a_time_limit_is_what_sbatch_takes_it_for(
    time: str, seconds: int, launch: Launch, run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = launch("slurm", run_file, "--time", time, "--notice-s", min(seconds - 1, 65_535))
    assert f"\n#SBATCH --time={time}\n" in job
    if seconds <= 65_535:
        assert main(["launch", "slurm", run_file, "--time", time, "--notice-s", str(seconds)]) == 2
        assert f"fewer seconds than the {seconds} of --time {time}" in capsys.readouterr().err


def test_the_ranks_of_a_slurm_job_are_told_how_long_before_its_end_to_stop(launch: Launch, run_file: str) -> None:
    for command in (("slurm", run_file), ("aws-p4d", run_file, *P4D)):
        job = launch(*command, "--notice-s", "60")
        assert "#SBATCH --signal=B:USR1@60\n" in job
        assert "\nexport KOSMOS_NOTICE_S=60 #" in job
        assert "\nexport KOSMOS_NOTICE_S=300 #" in launch(*command)


def test_a_job_has_a_name_that_schedulers_take(launch: Launch, run_file: str) -> None:
    Path(run_file).rename("8 GPUs_v2.yaml")
    task = yaml.safe_load(launch("skypilot", "8 GPUs_v2.yaml"))
    assert task["name"] == "run-8-gpus-v2"
