"""Which steps of a trial count, and when it gives up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from kosmos.errors import TrainingError
from kosmos.runtime.contention import Contention
from kosmos.tune.outcome import Job
from kosmos.tune.trial import WARM_UP_S, WARM_UP_STEPS, Counted


def counted(compiled: Sequence[int], *, steps: int, seconds: float = 0.0) -> Counted:
    """Steps of a millisecond behind the first ones, each with how many programs were compiled so far."""
    found = Counted(Job({}, steps, seconds), Contention(torch.device("cpu"), window_s=60.0))
    for _ in range(WARM_UP_STEPS):
        add(found, 1)
    found.began_s -= WARM_UP_S  # as though it had passed
    for programs in compiled:
        add(found, programs)
    return found


def add(found: Counted, programs: int) -> None:
    found.add({"step_s": 0.001, "data_wait_s": 0.0, "tokens": 10, "peak_memory_bytes": 1, "compilations": programs})


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
