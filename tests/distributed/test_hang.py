"""A rank that stands still is named within half a minute, and the run ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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


class Hanging(NamedTuple):
    output: Path
    run: Started


RUN = (
    "--modalities", "ticks", *SMALL, "train.steps=1000", "data.workers=0", "evaluate.max_documents=2", "train.hang_s=4",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = install_plugin(tmp_path_factory.mktemp("hang") / "site", "sleepy", SLEEPER)
    return install_plugin(site, "ticks", None, module=ticks.__name__)


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Iterator[dict[int, Hanging]]:
    """By its processes, a run of which the last rank sleeps. All wait at once, which takes no core."""
    home, found = tmp_path_factory.mktemp("hanging"), {}
    for nproc in (1, 2):
        many = ("--nproc", nproc, f"data.lanes={nproc}") if nproc > 1 else ()
        output = home / str(nproc)
        run = Started(
            "train", "streams.ticks.connector.name=sleepy", "--output", output, *RUN, *many, path=[site],
            SLEEPING_RANK=str(nproc - 1), **LOOPBACK,
        )  # fmt: skip
        found[nproc] = Hanging(output, run)
    yield found
    for one in found.values():
        for process in one.run.processes():
            os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_rank_that_hangs_is_named_with_its_phase_and_last_document(hanging: dict[int, Hanging], nproc: int) -> None:
    output, run = hanging[nproc]
    status, said = run.end(at_most_s=60)
    lines = [line for line in said.splitlines() if line.startswith("error[hang]")]
    assert status == 5, said
    assert len(lines) == 1
    named = f"no progress for 4 s: rank {nproc - 1} is in forward and backward of step 3, last document ticks"
    assert named in lines[0]
    assert "at acme_sleepy.py:" in lines[0]
    assert lines_in(output / "metrics.jsonl") == 2
    assert time.time() - (output / "metrics.jsonl").stat().st_mtime < 30
    last = rows_of(output / "goodput.jsonl")[-1]
    assert last["ended"] == "failed" and last["problem"].startswith(named)
