"""A program in Python that has made a process group keeps it."""

from __future__ import annotations

from pathlib import Path

from support import own_group, own_loss
from support.torchrun import done, forked


def test_a_process_group_of_the_caller_stays_and_those_of_runs_go(tmp_path: Path) -> None:
    printed = done(forked(2, [own_group.__file__, tmp_path]), at_most_s=120)
    assert printed.count("both groups are there") == 2


def test_a_loss_of_ones_own_has_the_gradients_of_all_ranks_where_ddp_wraps_what_calls_log_probs() -> None:
    printed = done(forked(2, [own_loss.__file__]), at_most_s=120)
    assert printed.count("as one process") == 2
