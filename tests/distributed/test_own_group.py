"""A program in Python that has made a process group keeps it."""

from __future__ import annotations

from pathlib import Path

from support import own_group
from support.torchrun import done, torchrun


def test_a_process_group_of_the_caller_stays_and_those_of_runs_go(tmp_path: Path) -> None:
    printed = done(torchrun(2, [own_group.__file__, tmp_path]), at_most_s=120)
    assert printed.count("both groups are there") == 2
