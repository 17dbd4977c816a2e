"""Losses of parts among ranks, of which one has no media: the gradients are those of one process."""

from __future__ import annotations

import json

import pytest

from support import own_losses
from support.torchrun import done, forked

WAYS = ("fsdp", "ddp", "tensor", "sequence")


@pytest.fixture(scope="module")
def compared() -> dict[str, dict]:
    printed = done(forked(2, [own_losses.__file__, *WAYS]), at_most_s=120)
    lines = [json.loads(line) for line in printed.splitlines()]
    return {line["way"]: line for line in lines}


@pytest.mark.parametrize("way", ["fsdp", "ddp", "tensor"])
def test_gradients_are_those_of_one_process(compared: dict[str, dict], way: str) -> None:
    found = compared[way]
    assert found["worst"] < 1e-5, found
    assert all(found["own"].values())
    first, second = found["told"]
    assert all(value > 0 for value in first.values()) and len(first) == 4
    if way == "tensor":  # both have the row
        assert second == pytest.approx(first, rel=1e-5)
    else:
        assert second == dict.fromkeys(first, 0.0)


def test_ranks_that_share_rows_are_refused(compared: dict[str, dict]) -> None:
    says = "streams.ticks.encoder: a part with a loss of its own does not go with parallel.sequence"
    assert all(error.startswith(says) for error in compared["sequence"]["error"])
    assert len(compared["sequence"]["error"]) == 2
