"""Two ranks of which one has too little memory: the run ends with what to do, and goes on in smaller parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kosmos import make_run
from kosmos.run_file import dump_run
from kosmos.train.run import train_model
from support import ticks
from support.command import Started, install_plugin
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


@pytest.mark.parametrize(("strategy", "slots", "parts"), [("fsdp", 20, 4), ("ddp", 40, 2)])
def test_one_rank_out_of_memory_has_all_compute_smaller_parts_after_a_resume(
    tmp_path: Path, alone: Path, strategy: str, slots: int, parts: int
) -> None:
    site = install_plugin(tmp_path / "site", "ticks", None, module=ticks.__name__)
    install_plugin(site, "narrow", NARROW)
    output, file = tmp_path / "run", tmp_path / "run.yaml"
    file.write_text(dump_run(make_run(SMALL, ROWS, {"output": str(output), "parallel": {"strategy": strategy}})))
    command = ["train", "--nproc", 2, file, "streams.ticks.connector.name=narrow"]
    for needed in (2, 4, 8, 16):
        status, said = Started(*command, path=[site], SLOTS=str(slots), **LOOPBACK).end(at_most_s=90)
        if status == 0:
            break
        (line,) = (line for line in said.splitlines() if line.startswith("error["))
        assert line.startswith("error[training]: step 1: out of memory in a row of "), said
        assert line.endswith(f"go on (--resume): rows will then be computed in {needed} parts on every rank"), line
        assert status == 4
        command = ["train", "--nproc", 2, "--resume", output]
    assert (status, needed) == (0, 2 * parts)
    assert f"memory did not suffice before: rows are computed in {parts} parts" in said
    losses, expected = ([row["loss"] for row in rows_of(f / "metrics.jsonl")] for f in (output, alone))
    assert losses == pytest.approx(expected, rel=1e-5)
