"""A rank that is done ends with status 0, whatever its threads are at."""

from __future__ import annotations

import os

import pytest

from support import late_threads, left_threads
from support.torchrun import done, torchrun


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="starves threads as Linux does")
@pytest.mark.parametrize("kept", [[], ["ddp"]], ids=["exchange", "model"])
def test_threads_that_free_the_last_exchange_late_abort_no_rank(kept: list[str]) -> None:
    done(torchrun(2, [late_threads.__file__, *kept]), at_most_s=120)


@pytest.mark.skipif(not left_threads.TASKS.exists(), reason="looks for threads where Linux tells them")
@pytest.mark.parametrize("kept", [[], ["kept"]], ids=["mesh", "model"])
def test_no_thread_of_an_exchange_outlives_the_exit_handlers(kept: list[str]) -> None:
    done(torchrun(2, [left_threads.__file__, *kept]), at_most_s=120)
