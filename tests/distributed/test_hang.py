"""A rank that stands still is named within half a minute, and the run ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import ticks
from support.command import SMALL, Started, install_plugin, lines_in
from support.runs import rows_of
from support.torchrun import LOOPBACK

SLEEPER = """
import os, time
from kosmos import ConnectorSpec, hookimpl
from kosmos.model.connectors import MLPConnector

KOSMOS_API = 1

@hookimpl
def kosmos_connectors():
    yield ConnectorSpec(name="sleepy", target="acme_sleepy:Sleepy", summary="Sleeps in its third row on one rank.")

class Sleepy(MLPConnector):
    calls = 0

    def forward(self, features, grids):
        if self.training:
            Sleepy.calls += 1
            if Sleepy.calls == 3 and os.environ.get("RANK", "0") == os.environ["SLEEPING_RANK"]:
                time.sleep(1000)
        return super().forward(features, grids)
"""
RUN = (
    "--modalities", "ticks", *SMALL, "train.steps=1000", "data.workers=0", "evaluate.max_documents=2", "train.hang_s=4",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = install_plugin(tmp_path_factory.mktemp("hang") / "site", "sleepy", SLEEPER)
    return install_plugin(site, "ticks", None, module=ticks.__name__)


@pytest.fixture(scope="module", autouse=True)
def suspended(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Iterator[Started]:
    """Two ranks, the first suspended. The tests before take the time in which it is waited for: torch gives it 30 s."""
    output = tmp_path_factory.mktemp("suspended") / "run"
    run = Started(
        "train", "--output", output, *RUN, "--nproc", 2, "data.lanes=2", "train.hang_s=8", path=[site], **LOOPBACK
    )
    run.wait_for(lambda: lines_in(output / "metrics.jsonl") > 2)
    first = next(p for p in run.processes() if _variable(p, "RANK") == "0")
    os.kill(first, signal.SIGSTOP)
    yield run
    for process in run.processes():
        os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_rank_that_hangs_is_named_with_its_phase_and_last_document(tmp_path: Path, site: Path, nproc: int) -> None:
    sleeping = nproc - 1
    many = ("--nproc", nproc, f"data.lanes={nproc}") if nproc > 1 else ()
    run = Started(
        "train", "streams.ticks.connector.name=sleepy", "--output", tmp_path / "run", *RUN, *many, path=[site],
        SLEEPING_RANK=str(sleeping), **LOOPBACK,
    )  # fmt: skip
    run.wait_for(lambda: lines_in(tmp_path / "run" / "metrics.jsonl") == 2)
    begin = time.monotonic()
    status, said = run.end(at_most_s=60)
    lines = [line for line in said.splitlines() if line.startswith("error[hang]")]
    assert status == 5, said
    assert len(lines) == 1
    named = f"no progress for 4 s: rank {sleeping} is in forward and backward of step 3, last document ticks"
    assert named in lines[0]
    assert "at acme_sleepy.py:" in lines[0]
    assert time.monotonic() - begin < 30
    last = rows_of(tmp_path / "run" / "goodput.jsonl")[-1]
    assert last["ended"] == "failed" and last["problem"].startswith(named)


def test_a_rank_that_was_suspended_is_named(suspended: Started) -> None:
    status, said = suspended.end(at_most_s=90)
    assert status == 5, said
    assert "rank 0 does not answer in " in said


def _variable(process: int, name: str) -> str | None:
    variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return next((v.decode().partition("=")[2] for v in variables if v.startswith(f"{name}=".encode())), None)
