"""Two ranks of which one has too little memory: the run ends with what to do, and goes on in smaller parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kosmos import make_run
from kosmos.run_file import dump_run
from kosmos.train.run import train_model
from support import ticks
from support.command import Started, install_plugin
from support.ranks import End, start_ranks
from support.runs import SMALL, rows_of, ticks_registry
from support.torchrun import LOOPBACK

NARROW = '''
"""A connector whose memory holds so many slots on the second rank."""

import os

import torch

from kosmos import ConnectorSpec, hookimpl
from kosmos.model.connectors import MLPConnector

KOSMOS_API = 1


class Narrow(MLPConnector):
    def forward(self, features: torch.Tensor, grids: torch.Tensor) -> torch.Tensor:
        if self.training and len(features) > int(os.environ["SLOTS"]) and os.environ["RANK"] == "1":
            raise torch.OutOfMemoryError("tried to allocate more than there is")
        return super().forward(features, grids)


@hookimpl
def kosmos_connectors() -> list[ConnectorSpec]:
    return [ConnectorSpec(name="narrow", target=f"{__name__}:Narrow", summary="Has little memory.")]
'''
ROWS = {
    "data": {"tokens_per_pack": 512, "sources": ["ticks", "sums"]},
    "train": {"optimizer": "adamw"},
    "evaluate": {"max_documents": 4},
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process, which has memory enough."""
    output = tmp_path_factory.mktemp("alone") / "run"
    train_model(make_run(SMALL, ROWS, {"output": str(output)}), registry=ticks_registry())
    return output


def run_file(folder: Path, output: Path, strategy: str) -> Path:
    file = folder / "run.yaml"
    file.write_text(dump_run(make_run(SMALL, ROWS, {"output": str(output), "parallel": {"strategy": strategy}})))
    return file


def narrow(folder: Path) -> Path:
    site = install_plugin(folder / "site", "ticks", None, module=ticks.__name__)
    return install_plugin(site, "narrow", NARROW)


def assert_ends_with(said: str, parts: int) -> None:
    (line,) = (line for line in said.splitlines() if line.startswith("error["))
    assert line.startswith("error[training]: step 1: out of memory in a row of "), said
    assert line.endswith(f"go on (--resume): rows will then be computed in {parts} parts on every rank"), line


def assert_goes_on(said: str, parts: int, output: Path, alone: Path) -> None:
    assert f"memory did not suffice before: rows are computed in {parts} parts" in said
    losses, expected = ([row["loss"] for row in rows_of(f / "metrics.jsonl")] for f in (output, alone))
    assert losses == pytest.approx(expected, rel=1e-5)


def test_one_rank_out_of_memory_has_all_compute_smaller_parts_after_a_resume(tmp_path: Path, alone: Path) -> None:
    site, output = narrow(tmp_path), tmp_path / "run"
    begin = ["train", "--nproc", 2, run_file(tmp_path, output, "ddp"), "streams.ticks.connector.name=narrow"]
    status, said = Started(*begin, path=[site], SLOTS="40", **LOOPBACK).end(at_most_s=90)
    assert_ends_with(said, 2)
    assert status == 4
    go_on = ["train", "--nproc", 2, "--resume", output]
    status, said = Started(*go_on, path=[site], SLOTS="40", **LOOPBACK).end(at_most_s=90)
    assert status == 0, said
    assert_goes_on(said, 2, output, alone)


def test_parts_that_are_still_too_large_are_halved_again_under_fsdp(tmp_path: Path, alone: Path) -> None:
    site, output = narrow(tmp_path), tmp_path / "run"
    told: tuple[object, ...] = (run_file(tmp_path, output, "fsdp"), "streams.ticks.connector.name=narrow")
    for parts in (2, 4):
        ends = ends_of_two(told, site)
        assert_ends_with("".join(said for _, said in ends), parts)
        assert [status for status, _ in ends] == [4, 4]
        told = ("--resume", output)
    ends = ends_of_two(told, site)
    assert [status for status, _ in ends] == [0, 0], ends
    assert_goes_on("".join(said for _, said in ends), 4, output, alone)


def ends_of_two(told: Sequence[object], site: Path) -> list[End]:
    runs = start_ranks([("-m", "kosmos", "train", *told)] * 2, path=[site], SLOTS="20")
    return [run.end(at_most_s=90) for run in runs]
