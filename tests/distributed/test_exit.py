"""A rank ends: one that is done with status 0, whatever its threads are at, and one whose peer is gone with its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support import late_threads, left_threads, like_nccl, ticks
from support.command import install_plugin, lines_in
from support.ranks import free_port, start_ranks
from support.runs import SMALL
from support.torchrun import done


def ranks_end_well(*program: str) -> None:
    for run in start_ranks([program] * 2):
        done(run, at_most_s=120)


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="starves threads as Linux does")
@pytest.mark.parametrize("kept", [[], ["ddp"]], ids=["exchange", "model"])
def test_threads_that_free_the_last_exchange_late_abort_no_rank(kept: list[str]) -> None:
    ranks_end_well(late_threads.__file__, *kept)


@pytest.mark.skipif(not left_threads.TASKS.exists(), reason="looks for threads where Linux tells them")
@pytest.mark.parametrize("kept", [[], ["kept"]], ids=["mesh", "model"])
def test_no_thread_of_an_exchange_outlives_the_exit_handlers(kept: list[str]) -> None:
    ranks_end_well(left_threads.__file__, *kept)


@pytest.mark.parametrize("how", ["command", "program"])
def test_a_rank_whose_peer_is_gone_ends_though_nccl_would_wait_for_it(tmp_path: Path, how: str) -> None:
    site = install_plugin(tmp_path / "site", "ticks", None, module=ticks.__name__)
    output = tmp_path / "run"
    run = {**SMALL, "output": str(output), "train": {"steps": 10_000, "device": "cpu"}}
    (tmp_path / "run.yaml").write_text(json.dumps(run))
    file = tmp_path / "run.yaml"
    told = ["train", file] if how == "command" else [file, free_port()]
    first, second = start_ranks([[like_nccl.__file__, how, *told]] * 2, path=[site])
    try:
        first.wait_for(lambda: lines_in(output / "metrics.jsonl") > 2)
        second.process.kill()
        printed, said = first.process.communicate(timeout=60)
    finally:
        for rank in (first, second):
            rank.process.kill()
            rank.process.communicate()
    gone = "another rank is gone without a word"
    if how == "command":
        assert first.process.returncode == 4, said
        (line,) = (line for line in said.splitlines() if "error" in line)
        go_on = f"go on with: kosmos train --resume {output} (in 2 processes, started on their nodes as these were)"
        assert line == f"error[training]: {gone}, such as for want of memory; {go_on}"
        assert "step 1/" in printed + said
    else:
        assert first.process.returncode == 1, said
        lines = printed.splitlines()
        assert "data.lanes" in lines[0] and gone in lines[1] and lines[2:] == ["written at the end"]
        assert "start all processes anew" in said and said.splitlines()[-1].endswith("this process ends with 1")
