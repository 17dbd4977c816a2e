"""A run that has ended holds no memory of its data workers, whether Python's collector has come by or not."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from kosmos import Interrupted, Reporter, resume_run, train_model
from kosmos.data.feeder import WorkerFeeder, open_feeder
from kosmos.errors import TrainingError
from support.feeds import feed_of
from support.runs import small_run, ticks_registry
from support.ticks import TicksSource

FOLDER = Path("/proc/self/fd")

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="descriptors are listed by Linux alone")


class StopsAtThree(Reporter):
    taken = 0

    def step(self, row, steps):
        self.taken = row["step"]

    def wants_stop(self):
        return self.taken == 3


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def memories() -> list[str]:
    """What is open of rows and of markers, by descriptor."""
    found = []
    for number in os.listdir(FOLDER):
        with suppress(FileNotFoundError):  # the folder's own
            found.append(f"{number}: {os.readlink(FOLDER / number)}")
    return sorted(one for one in found if "(deleted)" in one)


def test_rows_that_nobody_took_go_as_their_feeder_is_closed(uncollected: None) -> None:
    before = memories()
    feeder = open_feeder(feed_of(), [0], workers=1)
    try:
        rows = feeder.next_step()
        assert isinstance(feeder, WorkerFeeder)
        end = monotonic() + 30
        while not feeder.workers[0].inbox.full() and monotonic() < end:
            sleep(0.01)
        assert feeder.workers[0].inbox.full()
    finally:
        feeder.close()
    assert len(memories()) == len(before) + 1, "a row that was taken stays"
    assert rows[0].arrays.token_ids.any()
    del rows
    assert memories() == before


class Held(Reporter):
    """Knows whether the parameters of a run are there."""

    def start(self, run):
        self.parameters = [weakref.ref(parameter) for parameter in run.composition.model.parameters()]

    def count(self) -> int:
        return sum(parameter() is not None for parameter in self.parameters)


@pytest.mark.parametrize("train", [{}, {"optimizer": "muon"}, {"release_gradients": True, "clip_norm": None}], ids=str)
def test_weights_and_states_go_with_their_run(tmp_path: Path, uncollected: None, train: dict[str, Any]) -> None:
    held = Held()
    train_model(small_run(tmp_path / "run", train=train, data={"lanes": 1}), registry=ticks_registry(), reporter=held)
    assert held.parameters and not held.count()


def test_runs_leave_no_memory_of_workers_however_they_end(tmp_path: Path, uncollected: None) -> None:
    given: dict[str, Any] = {"sources": [TicksSource("train", 600)], "registry": ticks_registry()}
    data = {"workers": 1, "sources": [], "tokens_per_pack": 2048}  # of less a pipe holds so many that all slots fill
    before = memories()
    train_model(small_run(tmp_path / "whole", data=data), **given)
    assert memories() == before
    with pytest.raises(Interrupted):
        train_model(small_run(tmp_path / "cut", data=data), **given, reporter=StopsAtThree())
    assert memories() == before
    assert resume_run(tmp_path / "cut", **given).step == 6
    assert memories() == before
    given["sources"] = [TicksSource("train", 600, infinite=tuple(range(600)))]
    with pytest.raises(TrainingError, match="not finite"):
        train_model(small_run(tmp_path / "wrong", data=data), **given)
    assert memories() == before
