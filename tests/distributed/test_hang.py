"""A rank that stands still is named within half a minute, and the run ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from support.command import SMALL, Started, install_plugin, lines_in

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
RUN = (*SMALL, "train.steps=1000", "data.workers=0", "evaluate.max_documents=2", "train.hang_s=4")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return install_plugin(tmp_path / "site", "sleepy", SLEEPER)


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_rank_that_hangs_is_named_with_its_phase_and_last_document(tmp_path: Path, site: Path, nproc: int) -> None:
    sleeping = nproc - 1
    modality = ("--modalities", "image", "streams.image.connector.name=sleepy")
    many = ("--nproc", nproc, f"data.lanes={nproc}") if nproc > 1 else ()
    run = Started(
        "train", *modality, "--output", tmp_path / "run", *RUN, *many, path=[site],
        SLEEPING_RANK=str(sleeping), GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    run.wait_for(lambda: lines_in(tmp_path / "run" / "metrics.jsonl") == 2)
    begin = time.monotonic()
    status, said = run.end(at_most_s=60)
    lines = [line for line in said.splitlines() if line.startswith("error[hang]")]
    assert status == 5, said
    assert len(lines) == 1
    named = f"no progress for 4 s: rank {sleeping} is in forward and backward of step 3, last document shapes"
    assert named in lines[0]
    assert "at acme_sleepy.py:" in lines[0]
    assert time.monotonic() - begin < 30


def test_a_rank_that_was_suspended_is_named(tmp_path: Path) -> None:
    run = Started(
        "train", "--modalities", "image", "--output", tmp_path / "run", *RUN, "--nproc", 2, "data.lanes=2",
        "train.hang_s=8", GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    run.wait_for(lambda: lines_in(tmp_path / "run" / "metrics.jsonl") > 2)
    suspended = next(p for p in run.processes() if _variable(p, "RANK") == "0")
    os.kill(suspended, signal.SIGSTOP)
    status, said = run.end(at_most_s=90)
    assert status == 5, said
    assert "rank 0 does not answer in " in said


def _variable(process: int, name: str) -> str | None:
    variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return next((v.decode().partition("=")[2] for v in variables if v.startswith(f"{name}=".encode())), None)
