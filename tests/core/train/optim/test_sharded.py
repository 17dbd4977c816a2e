"""Lion on DTensors of two processes is Lion on one."""

from __future__ import annotations

import pytest
import torch
from torch import multiprocessing

from support import sharded_lion


@pytest.mark.parametrize(
    ("placement", "options"),
    [
        ("rows", {"dtype": torch.float32}),
        ("rows", {"dtype": torch.bfloat16, "block": 64, "master": "stochastic"}),
        ("rows", {"dtype": torch.bfloat16, "block": 64, "master": "bits8"}),
        ("columns", {"dtype": torch.bfloat16, "master": "bits16"}),
        ("copies", {"dtype": torch.bfloat16, "block": 64, "master": "stochastic"}),
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


def test_released_steps_of_a_fully_sharded_model_equal_ordinary_ones(tmp_path):
    multiprocessing.spawn(sharded_lion.released, (2, tmp_path), nprocs=2)
    for rank in range(2):
        during, after = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert all(torch.equal(a, b) for a, b in zip(during, after, strict=True))
