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
from kosmos.train import backward, passes
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
    for row in found[1:]:  # the first has none but weights of 1
        weighed = [d._replace(weight=(n % 5 - 1) / 2) for n, d in enumerate(row.arrays.documents)]
        row.arrays.documents = tuple(weighed)
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
        assert (again.weights is None) == (row.weights is None) == (row is batches[0])
        for name in ("token_ids", "labels", "position_ids", "trained", *["weights"] * (row is not batches[0])):
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


def test_less_memory_is_taken_step_by_step() -> None:
    made = Passes(small_run(None, train={"lanes_at_once": 4}), {}, lanes=4)
    assert not made.is_short
    assert [made.shrink() for _ in range(4)] == [
        "2 rows are computed as one", "rows are computed one by one", "rows are computed in 2 parts",
        "rows are computed in 4 parts",
    ]  # fmt: skip
    assert made.is_short
    assert made.told() == "warning: train.lanes_at_once=4: none are joined, for want of memory"


@pytest.mark.parametrize(
    ("lanes", "tokens", "wanted", "at_once", "told"),
    [
        (4, 2048, None, 1, "a GPU computes rows one after another: train.lanes_at_once=4 joins so many"),
        (16, 2048, None, 1, "train.lanes_at_once=4 joins so many"),
        (4, 2048, 1, 1, None),
        (4, 8192, None, 1, None),
        (1, 512, None, 1, None),
        (4, 2048, 2, 2, None),
        (2, 2048, 4, 2, "warning: train.lanes_at_once=4: a process has 2 of data.lanes; raise that or lower"),
    ],
)
def test_a_gpu_joins_what_is_wanted_and_says_what_would_be_faster(
    lanes: int, tokens: int, wanted: int | None, at_once: int, told: str | None
) -> None:
    train = {} if wanted is None else {"lanes_at_once": wanted}
    config = small_run(None, data={**DATA, "lanes": lanes, "tokens_per_pack": tokens}, train=train)
    planner = compose(config, ticks_registry()).planner
    made = open_passes(config, planner, GPU, Parallel())
    assert made.at_once == at_once
    assert made.told() is None if told is None else told in str(made.told())
    on_a_cpu = open_passes(config, planner, CPU, Parallel())
    assert (on_a_cpu.at_once, on_a_cpu.told()) == (1, None)


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As on a GPU, on a CPU: how many rows each pass has."""
    sizes: list[int] = []

    def noted(batches: list[PackedBatch]) -> PackedBatch:
        sizes.append(len(batches))
        return joined(batches)

    monkeypatch.setattr(passes, "JOINED_ON", {"cpu"})
    monkeypatch.setattr(backward, "joined", noted)
    return sizes


def test_a_run_that_joins_rows_has_the_losses_of_one_that_does_not(tmp_path: Path, joins: list[int]) -> None:
    """And goes on from a checkpoint by joining others."""
    losses = {}
    sizes = {1: [1] * 24, 2: [2, 2] * 4 + [4] * 2, 3: [3, 1] * 6}
    for at_once in (1, 2, 3):
        joins.clear()
        steps = 4 if at_once == 2 else 6
        train = {"optimizer": "adamw", "schedule": "constant", "lanes_at_once": at_once, "steps": steps}
        output = tmp_path / str(at_once)
        train_model(small_run(output, data=DATA, train=train), registry=ticks_registry())
        if at_once == 2:
            resume_run(output, {"train": {"steps": 6, "lanes_at_once": 4}}, registry=ticks_registry())
        metrics = rows_of(output / "metrics.jsonl")
        losses[at_once] = [row["loss"] for row in metrics]
        assert [row["step"] for row in metrics] == [1, 2, 3, 4, 5, 6]
        assert joins == sizes[at_once]
    assert losses[2] == pytest.approx(losses[1], rel=1e-5)
    assert losses[3] == pytest.approx(losses[1], rel=1e-5)


def test_rows_that_memory_does_not_hold_together_are_computed_apart(
    tmp_path: Path, narrow: Any, joins: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert "in 4 rows at once, the largest of " in line
    assert "Lower train.lanes_at_once, data.tokens_per_pack" in line
    assert line.endswith("From here on 2 rows are computed as one")
    assert joins[-2:] == [2, 2]


def test_memory_may_end_a_joined_row_later_than_others(
    tmp_path: Path, narrow: Any, joins: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joining is what a run can do without at any step."""
    monkeypatch.setattr(Narrow, "late", 13)
    monkeypatch.setattr(Narrow, "most", 10**9)

    class Tight(Lines):
        def say(self, line: str) -> None:
            super().say(line)
            if "out of memory" in line:
                Narrow.late = 10**9

    train = {"optimizer": "adamw", "lanes_at_once": 4, "steps": 14}
    run = small_run(tmp_path / "run", data=DATA, streams={"ticks": {"connector": "narrow"}}, train=train)
    train_model(run, registry=narrow, reporter=Tight())
    assert joins == [4] * 13 + [2, 2] * 2


@pytest.mark.parametrize("number", [1, 2])
def test_rows_in_parts_are_not_joined(number: int) -> None:
    composed, _, batches = rows()
    slots = {route.stream: route.slots for route in composed.planner.routes.values()}
    made = Passes(small_run(None, train={"lanes_at_once": 3}), slots, lanes=3)
    made.parts = number
    assert made.at_once == (3 if number == 1 else 1)
    assert [lane for lane, _ in made.of(7, batches[0])] == [7] * len(parts(batches[0], number, slots))
