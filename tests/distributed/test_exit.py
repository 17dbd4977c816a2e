"""A rank that is done ends with status 0, whatever its threads are at."""

from __future__ import annotations

import os

import pytest

from support import late_threads
from support.torchrun import done, torchrun


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="starves threads as Linux does")
@pytest.mark.parametrize("kept", [[], ["ddp"]], ids=["exchange", "model"])
def test_threads_that_free_the_last_exchange_late_abort_no_rank(kept: list[str]) -> None:
    done(torchrun(2, [late_threads.__file__, *kept]), at_most_s=120)
