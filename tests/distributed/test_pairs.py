"""Every pair of non-empty subsets of modalities on the ranks: no hang, and the gradients of one process."""

from __future__ import annotations

import itertools
import json

import pytest

from support import modality_pairs
from support.modality_pairs import MODALITIES, SUBSETS
from support.torchrun import done, torchrun

SCRIPT = modality_pairs.__file__
TOLERANCE = 1e-6
"""fp32; measured 0 under FSDP and 1.2e-7 under DDP"""


def assert_equal_gradients(strategy: str, nproc: int, every: int) -> None:
    """Fails where a pair hangs for a minute: the script ends itself."""
    printed = done(torchrun(nproc, [SCRIPT, strategy, every]), at_most_s=600)
    rows = [json.loads(line) for line in printed.splitlines()]
    expected = list(itertools.product(SUBSETS, SUBSETS))[::every]
    assert [tuple(map(tuple, row["pair"])) for row in rows] == expected
    for row in rows:
        assert row["error"] < TOLERANCE, row
        assert row["moved"] == sorted({*row["pair"][0], *row["pair"][1]} - {"text"})
    assert len({row["parameters"] for row in rows}) == 1


def test_there_are_225_pairs() -> None:
    assert len(SUBSETS) ** 2 == (2 ** len(MODALITIES) - 1) ** 2 == 225


@pytest.mark.slow
def test_every_pair_of_subsets_on_two_sharded_ranks_has_the_gradients_of_one_process() -> None:
    assert_equal_gradients("fsdp", 2, 1)


@pytest.mark.parametrize(("strategy", "nproc", "every"), [("ddp", 2, 19), ("hsdp", 4, 56)])
def test_pairs_of_subsets_under_other_strategies_have_the_gradients_of_one_process(
    strategy: str, nproc: int, every: int
) -> None:
    assert_equal_gradients(strategy, nproc, every)
