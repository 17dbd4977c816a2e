"""Rows in parts: the same losses and gradients, and a run that goes on where memory does not suffice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kosmos import ConnectorSpec, hookimpl
from kosmos.compose import compose, make_feed
from kosmos.data.batch import to_tensors
from kosmos.data.feeder import open_feeder
from kosmos.errors import TrainingError
from kosmos.model.connectors import MLPConnector
from kosmos.run_sources import open_sources
from kosmos.train.passes import parts
from kosmos.train.run import train_model
from support.runs import rows_of, small_run, ticks_registry
from support.steps import threads_of_torch

ROW = {"data": {"tokens_per_pack": 512, "lanes": 1, "sources": ["ticks", "sums"]}}


class Narrow(MLPConnector):
    """Its memory holds so many slots; ``late`` calls later, fewer."""

    most = 40
    late = 10**9
    calls = 0

    def forward(self, features: torch.Tensor, grids: torch.Tensor) -> torch.Tensor:
        if self.training:
            Narrow.calls += 1
            if len(features) > (Narrow.most if Narrow.calls < Narrow.late else 0):
                raise torch.OutOfMemoryError("tried to allocate more than there is")
        return super().forward(features, grids)


class _Plugin:
    KOSMOS_API = 1

    @staticmethod
    @hookimpl
    def kosmos_connectors() -> list[ConnectorSpec]:
        return [ConnectorSpec(name="narrow", target=f"{__name__}:Narrow", summary="Has little memory.")]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Narrow, "calls", 0)
    return ticks_registry(narrow=_Plugin)


def one_batch():
    config, registry = small_run(None, **ROW), ticks_registry()
    composed = compose(config, registry)
    [row] = open_feeder(make_feed(composed, open_sources(config, registry, "train")), [0], workers=0).next_step()
    return composed, to_tensors(row.arrays)


@pytest.mark.parametrize("number", [2, 3, 8, 1000])
def test_parts_of_a_row_sum_to_the_row(number: int) -> None:
    composed, batch = one_batch()
    slots = {route.stream: route.slots for route in composed.planner.routes.values()}
    cut = parts(batch, number, slots)
    assert 1 < len(cut) <= min(number, len(batch.documents))
    assert [d.origin for p in cut for d in p.documents] == [d.origin for d in batch.documents]
    assert sum(p.num_targets for p in cut) == batch.num_targets
    gradients = []
    for rows in ([batch], cut):
        composed.model.zero_grad()
        totals = [composed.model(row).total for row in rows]
        torch.autograd.backward(sum(totals))
        gradients.append(
            (float(sum(t.detach() for t in totals)), [p.grad.clone() for p in composed.model.parameters()])
        )
    (one, whole), (many, summed) = gradients
    assert many == pytest.approx(one, rel=1e-6)  # measured: 1e-7
    for a, b in zip(whole, summed, strict=True):
        assert torch.allclose(a, b, atol=1e-4, rtol=1e-4)  # measured: 2e-5 at gradients near 20


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_run_out_of_memory_goes_on_with_smaller_parts_and_the_same_updates(
    tmp_path: Path, narrow, at_once: int
) -> None:
    losses = {}
    for name in ("mlp", "narrow"):
        over = {"data": {**ROW["data"], "lanes": at_once}, "streams": {"ticks": {"connector": name}}}
        train = {"optimizer": "adamw", "lanes_at_once": at_once}
        with threads_of_torch(at_once):
            train_model(small_run(tmp_path / name, **over, train=train), registry=narrow)
        losses[name] = [row["loss"] for row in rows_of(tmp_path / name / "metrics.jsonl")]
    assert Narrow.calls > 6
    assert losses["narrow"] == pytest.approx(losses["mlp"], rel=1e-5)  # measured: 4e-8


def test_out_of_memory_later_says_what_would_help(tmp_path: Path, narrow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Narrow, "most", 10**9)
    monkeypatch.setattr(Narrow, "late", 13)
    over = {**ROW, "streams": {"ticks": {"connector": "narrow"}}, "train": {"steps": 20}}
    line = r"step 13: out of memory in a row of \d+ tokens in \d+ documents, [\d,]+ cells of ticks\. Lower data\.tokens"
    with pytest.raises(TrainingError, match=line):
        train_model(small_run(tmp_path / "run", **over), registry=narrow)
