"""A trial of two ranks of which one fails: which of them says so."""

from __future__ import annotations

from pathlib import Path

from kosmos.run_file import parse_overrides
from kosmos.tune.outcome import Job, Outcome
from support import ticks
from support.command import SMALL, install_plugin
from support.ranks import start_ranks

NARROW = '''
"""A connector that lacks memory on the second rank."""

import os

import torch

from kosmos import ConnectorSpec, hookimpl
from kosmos.model.connectors import MLPConnector

KOSMOS_API = 1


class Narrow(MLPConnector):
    def forward(self, features: torch.Tensor, grids: torch.Tensor) -> torch.Tensor:
        if self.training and os.environ["RANK"] == "1":
            raise torch.OutOfMemoryError("tried to allocate more than there is")
        return super().forward(features, grids)


@hookimpl
def kosmos_connectors() -> list[ConnectorSpec]:
    return [ConnectorSpec(name="narrow", target=f"{__name__}:Narrow", summary="Has little memory.")]
'''


def test_a_rank_whose_exchange_another_broke_by_failing_says_nothing(tmp_path: Path) -> None:
    site = install_plugin(tmp_path / "site", "ticks", None, module=ticks.__name__)
    install_plugin(site, "narrow", NARROW)
    more = ["modalities=[ticks]", "streams.ticks.connector.name=narrow", "data.lanes=2", "train.compile=false"]
    settings = parse_overrides([*SMALL, *more, "data.workers=0", "parallel.strategy=ddp"])
    Job({**settings, "data": {**settings["data"], "sources": ["ticks"]}}, 2, 0.0, 2).write(tmp_path)
    ends = [rank.end() for rank in start_ranks([("-m", "kosmos", "tune", "--trial", str(tmp_path))] * 2, path=[site])]
    assert [status for status, _ in ends] == [4, 4], ends
    assert Outcome.read(tmp_path, 0) is None
    told = Outcome.read(tmp_path, 1)
    assert told is not None
    assert told.out_of_memory
    assert told.error.startswith("error[training]: step 1: out of memory in a row of ")
