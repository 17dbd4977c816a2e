"""A rank that is done ends with status 0, whatever its threads are at."""

from __future__ import annotations

import os

import pytest

from support import late_threads, left_threads
from support.ranks import start_ranks
from support.torchrun import done


def ranks_end_well(*program: str) -> None:
    for run in start_ranks([program] * 2):
        done(run, at_most_s=120)


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="starves threads as Linux does")
@pytest.mark.parametrize("kept", [[], ["ddp"]], ids=["exchange", "model"])
def test_threads_that_free_the_last_exchange_late_abort_no_rank(kept: list[str]) -> None:
    ranks_end_well(late_threads.__file__, *kept)


@pytest.mark.skipif(not left_threads.TASKS.exists(), reason="looks for threads where Linux tells them")
@pytest.mark.parametrize("kept", [[], ["kept"]], ids=["mesh", "model"])
def test_no_thread_of_an_exchange_outlives_the_exit_handlers(kept: list[str]) -> None:
    ranks_end_well(left_threads.__file__, *kept)
