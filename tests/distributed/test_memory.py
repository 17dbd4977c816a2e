"""Two ranks of which one has too little memory: the run ends with what to do, and goes on in smaller parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import ticks
from support.command import SMALL, Started, install_plugin
from support.runs import rows_of
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
        if self.training and len(features) > 20 and os.environ["RANK"] == "1":
            raise torch.OutOfMemoryError("tried to allocate more than there is")
        return super().forward(features, grids)


@hookimpl
def kosmos_connectors() -> list[ConnectorSpec]:
    return [ConnectorSpec(name="narrow", target=f"{__name__}:Narrow", summary="Has little memory.")]
'''
RUN = (
    "--modalities", "ticks", *SMALL, "data.lanes=2", "data.workers=0", "data.tokens_per_pack=512",
    "data.sources=[ticks, sums]", "train.steps=6", "train.optimizer=adamw", "train.precision=fp32",
    "evaluate.max_documents=4",
)  # fmt: skip


@pytest.mark.parametrize("strategy", ["fsdp", "ddp"])
def test_one_rank_out_of_memory_has_all_compute_smaller_parts_after_a_resume(tmp_path: Path, strategy: str) -> None:
    site = install_plugin(tmp_path / "site", "ticks", None, module=ticks.__name__)
    install_plugin(site, "narrow", NARROW)
    losses = {}
    for connector in ("mlp", "narrow"):
        output = tmp_path / connector
        more = (f"streams.ticks.connector.name={connector}", f"parallel.strategy={strategy}")
        said = []
        command = ["train", "--nproc", 2, "--output", output, *RUN, *more]
        for _ in range(6):
            status, text = Started(*command, path=[site], **LOOPBACK).end(at_most_s=90)
            said.append(text)
            if status == 0:
                break
            (line,) = (line for line in text.splitlines() if line.startswith("error["))
            parts = 2 ** len(said)
            assert line.startswith("error[training]: step 1: out of memory in a row of "), text
            assert line.endswith(f"go on (--resume): rows will then be computed in {parts} parts on every rank"), line
            assert status == 4
            command = ["train", "--nproc", 2, "--resume", output]
        assert status == 0, text
        assert (len(said) > 1) is (connector == "narrow")
        losses[connector] = [row["loss"] for row in rows_of(output / "metrics.jsonl")]
    assert f"memory did not suffice before: rows are computed in {2 ** (len(said) - 1)} parts" in said[-1]
    assert losses["narrow"] == pytest.approx(losses["mlp"], rel=1e-5)
