"""Steps that are recorded: what is written of them, and what is left alone."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import make_run
from kosmos.config_profile import ProfileConfig
from kosmos.errors import ConfigError
from kosmos.train.profiling import SPAN, Profiler, kind_of
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry
from support.steps import threads_of_torch

PROFILE = {"after_steps": 1, "steps": 2}


class Lines(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def trained(output: Path, **over: Any) -> list[str]:
    """The lines of a run, but for warnings."""
    reporter = Lines()
    train_model(small_run(output, **over), registry=ticks_registry(), reporter=reporter)
    return [line for line in reporter.lines if not line.startswith("warning")]


def trace_of(file: Path) -> list[str]:
    return [event.get("name", "") for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]]


def test_a_table_and_a_trace_of_the_steps_are_written_and_training_stays_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = trained(tmp_path / "run", profile=PROFILE)
    files = sorted(file.name for file in (tmp_path / "run" / "profile").iterdir())
    assert files == ["steps-2-3-rank0.trace.json.gz", "steps-2-3-rank0.txt"]
    (line,) = lines
    assert line.startswith("profile of steps 2 to 3: ") and "products" in line and files[1] in line
    text = (tmp_path / "run" / "profile" / files[1]).read_text()
    assert text.startswith("steps 2 to 3, rank 0, cpu\n") and "by phase: forward and backward" in text
    assert "aten::mm" in text
    spans = [name for name in trace_of(tmp_path / "run" / "profile" / files[0]) if name.startswith(SPAN)]
    assert spans.count(f"{SPAN}update") == 2 and spans.count(f"{SPAN}forward and backward") == 4  # of two lanes
    assert capfd.readouterr().err == ""  # a CUDA build without a GPU would call that an error
    trained(tmp_path / "other")
    losses = [[row["loss"] for row in rows_of(tmp_path / run / "metrics.jsonl")] for run in ("run", "other")]
    assert losses[0] == losses[1]


def test_what_comes_between_steps_is_none_of_theirs(tmp_path: Path) -> None:
    trained(tmp_path / "run", profile=PROFILE, evaluate={"every_steps": 2, "max_documents": 20})
    folder = tmp_path / "run" / "profile"
    text = (folder / "steps-2-3-rank0.txt").read_text()
    counted = next(int(line.split()[2]) for line in text.splitlines() if line.endswith("  _Loss"))
    assert counted == 4  # of two lanes in two steps
    assert trace_of(folder / "steps-2-3-rank0.trace.json.gz").count("_Loss") > 4
    by_phase = next(line for line in text.splitlines() if line.startswith("by phase"))
    assert sum(map(float, re.findall(r"([\d.]+)%", by_phase))) <= 100.5


def test_of_steps_that_are_taken_again_those_count_that_were_taken_whole(tmp_path: Path) -> None:
    """As where a guard goes back in the midst of them."""
    lines: list[str] = []
    settings = ProfileConfig(after_steps=1, steps=3)
    profiler = Profiler(
        settings,
        tmp_path / "profile",
        rank=0,
        device=torch.device("cpu"),
        at=lambda *_, **__: None,
        report=lines.append,
    )
    for step, multiplies in ((8, True), (9, True), (10, True), (11, False), (8, True)):
        with suppress(ZeroDivisionError), profiler.around(step):
            profiler.at("forward and backward")
            torch.ones(4, 4).exp() if multiplies else torch.ones(4, 4).cos() / (1 // 0)
    (text,) = (file.read_text() for file in (tmp_path / "profile").glob("*.txt"))
    assert text.startswith("steps 8 to 10, rank 0") and "profile of steps 8 to 10" in lines[0]
    assert re.search(r" 3 +aten::exp\n", text) and "aten::cos" not in text


def test_a_run_that_goes_on_records_steps_of_its_own(tmp_path: Path) -> None:
    trained(tmp_path / "run", train={"steps": 3})
    over = {"train": {"steps": 6}, "profile": PROFILE}
    resume_run(tmp_path / "run", over, registry=ticks_registry())
    assert {file.name.partition("-rank")[0] for file in (tmp_path / "run" / "profile").iterdir()} == {"steps-5-6"}


def test_rows_at_once_are_recorded_in_all_their_threads(tmp_path: Path) -> None:
    with threads_of_torch(2):
        trained(tmp_path / "run", train={"lanes_at_once": 2}, profile=PROFILE)
    trace = gzip.decompress((tmp_path / "run" / "profile" / "steps-2-3-rank0.trace.json.gz").read_bytes())
    products = [event for event in json.loads(trace)["traceEvents"] if event.get("name") == "aten::mm"]
    assert len({event["tid"] for event in products}) >= 2
    text = (tmp_path / "run" / "profile" / "steps-2-3-rank0.txt").read_text()
    by_kind = next(line for line in text.splitlines() if line.startswith("by kind"))
    assert 98 < sum(map(float, re.findall(r"([\d.]+)%", by_kind))) < 101


def test_a_run_that_stops_before_leaves_no_half_profile(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no rank of 1 process"):
        trained(tmp_path / "none", profile={**PROFILE, "ranks": [1]})
    with pytest.raises(ConfigError, match=r"3 steps after the first 10 are to be recorded, the run has 6"):
        trained(tmp_path / "none", profile=True)
    assert not (tmp_path / "none").exists()
    trained(tmp_path / "run", train={"steps": 3})
    reporter, over = Lines(), {"train": {"steps": 5}, "profile": PROFILE | {"steps": 4}}
    resume_run(tmp_path / "run", over, registry=ticks_registry(), reporter=reporter)
    # What was recorded of a session that ends before: its whole steps.
    assert [line.partition(":")[0] for line in reporter.lines if "profile" in line][1:] == ["profile of steps 5 to 5"]
    assert [file.name for file in (tmp_path / "run" / "profile").glob("*.txt")] == ["steps-5-5-rank0.txt"]
    shutil.rmtree(tmp_path / "run" / "profile")
    resume_run(tmp_path / "run", {"train": {"steps": 6}}, registry=ticks_registry(), reporter=reporter)
    assert not (tmp_path / "run" / "profile").exists()
    line = "profile: nothing was recorded: this session took 1 of the 5 steps it takes; profile=false turns it off"
    assert line in reporter.lines
    over = {"train": {"steps": 7}, "profile": False}
    resume_run(tmp_path / "run", over, registry=ticks_registry(), reporter=(reporter := Lines()))
    assert [line.partition(":")[0] for line in reporter.lines if "profile" in line] == ["changed"]


@pytest.mark.parametrize("ranks", [0, "0", [0]])
def test_one_rank_needs_no_brackets(ranks: Any) -> None:
    assert make_run({"profile": {"ranks": ranks}}).profile == ProfileConfig(ranks=[0])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "products"),
        ("nvjet_sm90_tst_192x192", "products"),
        ("aten::convolution_backward", "products"),
        ("flash_fwd_kernel", "attention"),
        ("aten::_scaled_dot_product_flash_attention", "attention"),
        ("ncclDevKernel_AllGather_RING_LL", "exchanges"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
        ("aten::silu", "other operations"),
    ],
)
def test_operations_and_kernels_are_told_by_kind(name: str, kind: str) -> None:
    assert kind_of(name) == kind
