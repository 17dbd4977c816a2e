"""Every pair of non-empty subsets of modalities on the ranks: no hang, and the gradients of one process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import modality_pairs
from support.modality_pairs import MODALITIES, PAIRS, pairs
from support.thorough import ASKED
from support.torchrun import done, forked

TOLERANCE = 1e-6
"""fp32; measured 0 under FSDP and 1.2e-7 under DDP"""
WAYS = [(2, "fsdp", 1 if ASKED else 0), (2, "ddp", 19), (4, "hsdp", 56)]
"""Processes, strategy, and of how many pairs one is taken; 0 takes each once, whichever rank has which subset."""


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """A row for each strategy and pair. Fails where a pair hangs for a minute: the script ends itself."""
    ways = [",".join(map(str, way)) for way in WAYS]
    return [json.loads(line) for line in done(forked(4, [modality_pairs.__file__, *ways]), at_most_s=600).splitlines()]


def test_there_are_225_pairs_of_which_the_two_of_the_same_subsets_are_one() -> None:
    assert len({*PAIRS}) == (2 ** len(MODALITIES) - 1) ** 2 == 225
    once = pairs(0)
    assert len(once) == (225 + 15) / 2 and {*once} | {(b, a) for a, b in once} == {*PAIRS}


@pytest.mark.slow
@pytest.mark.parametrize(("nproc", "strategy", "every"), WAYS)
def test_pairs_of_subsets_on_the_ranks_have_the_gradients_of_one_process(
    rows: list[dict[str, Any]], nproc: int, strategy: str, every: int
) -> None:
    found = [row for row in rows if row["strategy"] == strategy]
    assert [tuple(map(tuple, row["pair"])) for row in found] == pairs(every)
    for row in found:
        assert row["error"] < TOLERANCE, row
        assert row["moved"] == sorted({*row["pair"][0], *row["pair"][1]} - {"text"})
    assert len({row["parameters"] for row in found}) == 1
