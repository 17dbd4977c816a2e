"""Rows that are computed as one: the same documents, losses and updates, in fewer passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos.compose import compose, make_feed
from kosmos.data.batch import PackedBatch, to_tensors
from kosmos.data.feeder import open_feeder
from kosmos.run_sources import open_sources
from kosmos.runtime.parallel import Parallel
from kosmos.train import passes
from kosmos.train.passes import Passes, joined, open_passes, parts
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry

from .test_memory import Narrow, narrow
from .test_side_by_side import Lines

__all__ = ["narrow"]  # a fixture
CPU, GPU = torch.device("cpu"), torch.device("cuda")
DATA = {"tokens_per_pack": 128, "lanes": 4, "sources": ["ticks", "sums"]}


def rows(lanes: int = 3) -> tuple[Any, list[Any], list[PackedBatch]]:
    config, registry = small_run(None, data={**DATA, "lanes": lanes}), ticks_registry()
    composed = compose(config, registry)
    feed = make_feed(composed, open_sources(config, registry, "train"))
    found = open_feeder(feed, list(range(lanes)), workers=0).next_step()
    return composed, found, [to_tensors(row.arrays) for row in found]


def test_a_joined_row_holds_the_documents_of_all() -> None:
    composed, _, batches = rows()
    whole = joined(batches)
    assert [d.origin for d in whole.documents] == [d.origin for b in batches for d in b.documents]
    assert whole.num_targets == sum(b.num_targets for b in batches)
    for document in whole.documents:
        assert int(whole.position_ids[document.start]) == 0
    slots = {route.stream: route.slots for route in composed.planner.routes.values()}
    for row, again in zip(batches, _cut(whole, batches, slots), strict=True):
        assert again.documents == row.documents
        for name in ("token_ids", "labels", "position_ids", "trained"):
            assert torch.equal(getattr(again, name), getattr(row, name))
        for name, media in row.media.items():
            for part in ("values", "grids", "slots"):
                assert torch.equal(getattr(again.media[name], part), getattr(media, part))


def _cut(whole: PackedBatch, batches: list[PackedBatch], slots: Any) -> list[PackedBatch]:
    """Into the rows that it was joined of."""
    ends = torch.tensor([len(b.token_ids) for b in batches]).cumsum(0).tolist()
    return [passes._part(whole, end - len(b.token_ids), end, slots) for b, end in zip(batches, ends, strict=True)]


def test_losses_and_gradients_of_a_joined_row_sum_to_those_of_the_rows() -> None:
    composed, _, batches = rows()
    found = []
    for some in (batches, [joined(batches)]):
        composed.model.zero_grad()
        total = sum(composed.model(batch).total for batch in some)
        total.backward()
        found.append((float(total.detach()), [p.grad.clone() for p in composed.model.parameters()]))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-6)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert torch.allclose(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("at_once", "sizes"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (9, [3])])
def test_lanes_are_joined_in_their_order(at_once: int, sizes: list[int]) -> None:
    _, found, batches = rows()
    made = Passes({}, at_once=at_once).of(found, batches)
    firsts = [sum(sizes[:number]) for number in range(len(sizes))]
    assert [lane for lane, _ in made] == firsts
    assert [len(batch.token_ids) for _, batch in made] == [
        sum(len(b.token_ids) for b in batches[first : first + size]) for first, size in zip(firsts, sizes, strict=True)
    ]


def test_less_memory_is_taken_step_by_step() -> None:
    made = Passes({}, at_once=4)
    assert [made.shrink() for _ in range(4)] == [
        "2 rows are computed as one", "rows are computed one after another", "rows are computed in 2 parts",
        "rows are computed in 4 parts",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lanes", "tokens", "wanted", "at_once", "told"),
    [
        (4, 2048, 1, 1, "a GPU computes rows one after another: train.lanes_at_once=4 makes them one"),
        (16, 2048, 1, 1, "train.lanes_at_once=4 makes them one"),
        (4, 8192, 1, 1, None),
        (1, 512, 1, 1, None),
        (4, 2048, 2, 2, None),
        (2, 2048, 4, 2, "warning: train.lanes_at_once=4: a process has 2 of data.lanes; raise that, or lower"),
    ],
)
def test_a_gpu_joins_what_is_wanted_and_says_what_would_be_faster(
    lanes: int, tokens: int, wanted: int, at_once: int, told: str | None
) -> None:
    config = small_run(None, data={**DATA, "lanes": lanes, "tokens_per_pack": tokens}, train={"lanes_at_once": wanted})
    planner = compose(config, ticks_registry()).planner
    said: list[str] = []
    assert open_passes(config, planner, GPU, Parallel(), said.append).at_once == at_once
    assert said == [] if told is None else told in said[0]
    assert open_passes(config, planner, CPU, Parallel()).at_once == 1


def test_a_run_that_joins_rows_has_the_losses_of_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, on a CPU; and goes on from a checkpoint by joining others."""
    monkeypatch.setattr(passes, "JOINED_ON", {"cpu"})
    losses = {}
    for at_once in (1, 2, 4):
        steps = 4 if at_once == 2 else 6
        train = {"optimizer": "adamw", "schedule": "constant", "lanes_at_once": at_once, "steps": steps}
        output = tmp_path / str(at_once)
        train_model(small_run(output, data=DATA, train=train), registry=ticks_registry())
        if at_once == 2:
            resume_run(output, {"train": {"steps": 6, "lanes_at_once": 4}}, registry=ticks_registry())
        metrics = rows_of(output / "metrics.jsonl")
        losses[at_once] = [row["loss"] for row in metrics]
        assert [row["step"] for row in metrics] == [1, 2, 3, 4, 5, 6]
    assert losses[2] == pytest.approx(losses[1], rel=1e-5)
    assert losses[4] == pytest.approx(losses[1], rel=1e-5)


def test_rows_that_memory_does_not_hold_together_are_computed_apart(
    tmp_path: Path, narrow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "JOINED_ON", {"cpu"})
    losses, reporter = {}, Lines()
    for name in ("mlp", "narrow"):
        train = {"optimizer": "adamw", "lanes_at_once": 4}
        run = small_run(tmp_path / name, data=DATA, streams={"ticks": {"connector": name}}, train=train)
        train_model(run, registry=narrow, reporter=reporter)
        metrics = rows_of(tmp_path / name / "metrics.jsonl")
        losses[name] = [row["loss"] for row in metrics]
        monkeypatch.setattr(Narrow, "most", int(0.75 * max(row["media_tokens"] for row in metrics)))
    assert losses["narrow"] == pytest.approx(losses["mlp"], rel=1e-5)
    [line] = [line for line in reporter.lines if "out of memory" in line]
    assert "Lower train.lanes_at_once, data.tokens_per_pack" in line
    assert line.endswith("From here on 2 rows are computed as one")


def test_a_row_can_be_cut_behind_being_joined() -> None:
    composed, found, batches = rows()
    slots = {route.stream: route.slots for route in composed.planner.routes.values()}
    made = Passes(slots, at_once=3)
    made.parts = 2
    assert len(made.of(found, batches)) == sum(len(parts(batch, 2, slots)) for batch in batches)
