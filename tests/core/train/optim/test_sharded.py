"""Lion and AdamW on DTensors of two processes are those on one."""

from __future__ import annotations

import pytest
import torch
from torch import multiprocessing

from kosmos.train.optim.adamw import MasterAdamW
from support import sharded_lion


@pytest.mark.parametrize(
    ("placement", "options"),
    [
        ("rows", {"dtype": torch.float32}),
        ("rows", {"dtype": torch.float32, "compile": True}),
        ("rows", {"dtype": torch.bfloat16, "block": 64, "master": "stochastic", "compile": True}),
        ("rows", {"dtype": torch.bfloat16, "block": 64, "master": "stochastic"}),
        ("rows", {"dtype": torch.bfloat16, "block": 64, "master": "bits8"}),
        ("columns", {"dtype": torch.bfloat16, "master": "bits16"}),
        ("copies", {"dtype": torch.bfloat16, "block": 64, "master": "stochastic"}),
        ("rows", {"dtype": torch.bfloat16, "kind": MasterAdamW, "master": "stochastic"}),
        ("columns", {"dtype": torch.bfloat16, "kind": MasterAdamW, "master": "bits16"}),
    ],
    ids=str,
)
def test_two_processes_take_the_steps_of_one(tmp_path, placement, options):
    multiprocessing.spawn(sharded_lion.together, (2, tmp_path, placement, options), nprocs=2)
    plain = {k: v for k, v in options.items() if k != "dtype"}
    expected = sharded_lion.alone(plain, options["dtype"])
    for rank in range(2):
        for mine, its in zip(expected, torch.load(tmp_path / f"{rank}.pt", weights_only=True), strict=True):
            assert torch.equal(mine, its)


@pytest.mark.parametrize(("columns", "block"), [(512, 256), (1280, 256), (768, 256), (128, 128)])
def test_8_bit_momentum_that_is_cut_anew_is_what_it_was(tmp_path, columns, block):
    """As of a checkpoint that goes on with another number of ranks to a row, whose edges lie within blocks."""
    multiprocessing.spawn(sharded_lion.cut_anew, (2, tmp_path, columns, block), nprocs=2)
    for rank in range(2):
        mine, expected = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert torch.equal(mine, expected)


def test_8_bit_momentum_that_cannot_be_cut_is_refused(tmp_path):
    with pytest.raises(Exception, match=r"blocks of 96 of 96 columns cannot be cut into rows of 48: leave parallel\."):
        multiprocessing.spawn(sharded_lion.cut_anew, (2, tmp_path, 96, 96), nprocs=2)


def test_released_steps_of_a_fully_sharded_model_equal_ordinary_ones(tmp_path):
    multiprocessing.spawn(sharded_lion.released, (2, tmp_path), nprocs=2)
    for rank in range(2):
        during, after = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert all(torch.equal(a, b) for a, b in zip(during, after, strict=True))
