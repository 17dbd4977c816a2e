"""Ranks that share matrices, rows or both train as one process does: one launch of torchrun for all comparisons."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from support import sharing
from support.sharing import SHAPES
from support.torchrun import done, forked

GRADIENT, LOSS = 1e-5, 1e-6
"""Relative, fp32; measured 3.7e-6 (the smallest gradients of xPos, with tensor 2; else 8e-7) and 2e-7."""
WAYS = [(2, 2, 1), (2, 1, 2), (4, 2, 1), (4, 1, 2), (4, 2, 2)]
"""Processes, and degrees (tensor, sequence)."""


@pytest.fixture(scope="module")
def compared() -> Callable[[int, int, int, str], list[list[dict[str, Any]]]]:
    """Losses and gradients against one process: for each kind of row, what every rank found."""
    printed = done(forked(4, [sharing.__file__, *(",".join(map(str, way)) for way in WAYS)]), at_most_s=400)
    lines = [json.loads(line) for line in printed.splitlines()]

    def of(nproc: int, tensor: int, sequence: int, shape: str) -> list[list[dict[str, Any]]]:
        wanted = {"tensor": tensor, "sequence": sequence, "shape": shape}
        found = [ranks for ranks in lines if len(ranks) == nproc and wanted.items() <= ranks[0].items()]
        assert [ranks[0]["row"] for ranks in found] == list(sharing.ROWS)
        return found

    return of


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("nproc", "tensor", "sequence"), WAYS)
def test_losses_and_gradients_are_those_of_one_process(
    compared: Callable[..., Any], nproc: int, tensor: int, sequence: int, shape: str
) -> None:
    for ranks in compared(nproc, tensor, sequence, shape):
        assert max(rank["error"] for rank in ranks) < GRADIENT, ranks[0]
        assert max(rank["loss_error"] for rank in ranks) < LOSS, ranks[0]
        assert all(rank["predictions"] for rank in ranks)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("nproc", "tensor", "sequence"), WAYS)
def test_weights_that_each_rank_draws_for_itself_are_those_of_one_process(
    compared: Callable[..., Any], nproc: int, tensor: int, sequence: int, shape: str
) -> None:
    found = [rank["weights_that_differ"] for ranks in compared(nproc, tensor, sequence, shape) for rank in ranks]
    assert found == [[]] * len(found) != []


def test_the_parts_of_a_row_sum_to_its_loss_and_one_may_have_no_target(compared: Callable[..., Any]) -> None:
    several, _, untrained, _ = compared(2, 1, 2, "plain")
    for ranks in (several, untrained):
        assert sum(rank["total"] for rank in ranks) == pytest.approx(ranks[0]["sum"], rel=1e-6)
    assert min(rank["total"] for rank in several) > 0
    assert [rank["total"] > 0 for rank in untrained] == [False, True]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("nproc", "tensor", "sequence"), WAYS)
def test_operations_are_those_of_one_process(
    compared: Callable[..., Any], nproc: int, tensor: int, sequence: int, shape: str
) -> None:
    """What several ranks do alike counts once: encoders, and an item that lies in two parts of a row."""
    for ranks in compared(nproc, tensor, sequence, shape)[: sharing.COUNTED]:
        for group in {rank["group"] for rank in ranks}:
            of = [rank for rank in ranks if rank["group"] == group]
            found = {name: sum(rank["flops"][name] for rank in of) for name in of[0]["flops"]}
            assert found and found == pytest.approx(of[0]["flops_alone"], rel=0.01), (ranks[0]["row"], group)
