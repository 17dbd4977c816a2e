"""Which steps of a trial count, and when it gives up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from kosmos.data.feeder import Feeder, open_feeder
from kosmos.errors import TrainingError
from kosmos.runtime.contention import Contention
from kosmos.tune.outcome import Job
from kosmos.tune.trial import PACE_S, PACE_STEPS, WARM_UP_S, WARM_UP_STEPS, Counted
from support.faulty import Faulty
from support.feeds import feed_of


def counted(compiled: Sequence[int], *, steps: int, seconds: float = 0.0) -> Counted:
    """Steps of a millisecond behind the first ones, each with how many programs were compiled so far."""
    found = Counted(Job({}, steps, seconds), Contention(torch.device("cpu"), window_s=60.0))
    for _ in range(WARM_UP_STEPS):
        add(found, 1)
    found.began_s -= WARM_UP_S  # as though it had passed
    for programs in compiled:
        add(found, programs)
    return found


def add(found: Counted, programs: int, *, step_s: float = 0.001) -> None:
    found.add({"step_s": step_s, "data_wait_s": 0.0, "tokens": 10, "peak_memory_bytes": 1, "compilations": programs})


def test_fast_steps_count_until_the_seconds_are_up_and_a_late_compilation_only_begins_anew():
    found = counted([1] * 400 + [2] * 500, steps=3, seconds=0.5)
    assert not found.is_done()
    add(found, 2)
    assert found.is_done()
    outcome = found.outcome()
    assert (len(outcome.steps), outcome.warm_up_steps, outcome.compilations) == (500, WARM_UP_STEPS + 401, 2)


def test_a_trial_that_begins_anew_again_and_again_gives_up():
    found = counted([1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6], steps=3)
    assert not found.is_done()
    add(found, 7)
    line = (
        r"of 14 steps 6 compiled something new, not counting the first ones, and no end is seen \(7 programs so far\)"
    )
    with pytest.raises(TrainingError, match=line):
        found.is_done()


def test_a_trial_whose_every_step_compiles_something_gives_up():
    found = counted(range(2, 2 + 25), steps=3)
    assert not found.is_done()
    add(found, 100)
    with pytest.raises(TrainingError, match="of 28 steps 26 compiled something new"):
        found.is_done()


def ahead_of(feeder: Feeder, steps: int) -> None:
    """Wait until so many are made or under way."""
    end = time.monotonic() + 60
    while feeder.steps_ahead() < steps:
        assert time.monotonic() < end
        time.sleep(0.005)


def test_rows_that_a_slow_source_made_while_programs_were_compiled_feed_no_step_that_counts(tmp_path: Path):
    gate, early = tmp_path / "gate", 4
    alone = open_feeder(feed_of(lanes=1), [0], workers=0)
    rows = [alone.next_step()[0] for _ in range(WARM_UP_STEPS + early + 1)]
    slow = int(rows[-1].arrays.documents[0].origin.split()[1])
    feed = feed_of(lanes=1, processor=Faulty({("decode", slow): f"wait for {gate}"}))
    assert alone.steps_ahead() == 0
    feeder = open_feeder(feed, [0], workers=1)
    try:
        found = Counted(Job({}, 2), Contention(torch.device("cpu"), window_s=60.0), feeder.steps_ahead)
        for _ in range(WARM_UP_STEPS):
            feeder.next_step()
            ahead_of(feeder, early + 1)  # as while the step compiles
            add(found, 1)
        found.began_s -= WARM_UP_S
        for _ in range(early):
            feeder.next_step()
            add(found, 1)
        assert found.steps == []
        gate.touch()
        for _ in range(2):  # what was under way, and a row that was begun behind it
            feeder.next_step()
            add(found, 1)
        assert (len(found.steps), found.is_done()) == (1, False)
        feeder.next_step()
        add(found, 1)
        assert found.is_done()
        assert found.outcome().warm_up_steps == WARM_UP_STEPS + early + 1
    finally:
        feeder.close()


@pytest.mark.parametrize(("later", "counts"), [(20, True), (19, False)])
def test_long_steps_count_once_data_workers_have_kept_pace_with_some(later: int, counts: bool):
    ahead = iter([20] * WARM_UP_STEPS + [later] * 9)
    found = Counted(Job({}, 1), Contention(torch.device("cpu"), window_s=60.0), lambda: next(ahead))
    for _ in range(WARM_UP_STEPS):
        add(found, 1)
    found.began_s -= WARM_UP_S
    for _ in range(PACE_STEPS):
        add(found, 1, step_s=PACE_S)
    assert not found.is_done()
    add(found, 1, step_s=PACE_S)
    assert found.is_done() is counts
    assert found.outcome().warm_up_s == pytest.approx(WARM_UP_STEPS * 0.001 + (PACE_STEPS + (not counts)) * PACE_S)
