"""Lion, AdamW and Muon on DTensors of two processes are those on one. One start of two processes does it all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import multiprocessing

from kosmos.train.optim.adamw import MasterAdamW
from kosmos.train.optim.muon import Muon
from support import sharded_lion

STEPPED = [
    ("rows", {"dtype": torch.float32}),
    ("rows", {"dtype": torch.float32, "compile": True}),
    ("rows", {"dtype": torch.bfloat16, "block": 64, "master": "stochastic", "compile": True}),
    ("rows", {"dtype": torch.bfloat16, "block": 64, "master": "stochastic"}),
    ("rows", {"dtype": torch.bfloat16, "block": 64, "master": "bits8"}),
    ("columns", {"dtype": torch.bfloat16, "master": "bits16"}),
    ("copies", {"dtype": torch.bfloat16, "block": 64, "master": "stochastic"}),
    ("rows", {"dtype": torch.bfloat16, "kind": MasterAdamW, "master": "stochastic"}),
    ("columns", {"dtype": torch.bfloat16, "kind": MasterAdamW, "master": "bits16"}),
    ("rows", {"dtype": torch.bfloat16, "kind": MasterAdamW, "master": "stochastic", "compile": True}),
    ("columns", {"dtype": torch.bfloat16, "kind": MasterAdamW, "master": "bits8", "compile": True}),
    ("rows", {"dtype": torch.bfloat16, "kind": Muon, "master": "stochastic"}),
    ("rows", {"dtype": torch.bfloat16, "kind": Muon, "master": "bits16", "compile": True}),
    ("columns", {"dtype": torch.float32, "kind": Muon}),
    ("copies", {"dtype": torch.bfloat16, "kind": Muon, "master": "bits16"}),
    ("processes", {"dtype": torch.float32, "kind": Muon}),
]
CUT = [(512, 256), (1280, 256), (768, 256), (128, 128)]
"""Columns and block."""
UNEVEN = (96, 96)
JOBS = {
    **{f"stepped {i}": (sharded_lion.together, way) for i, way in enumerate(STEPPED)},
    **{f"cut {columns} {block}": (sharded_lion.cut_anew, (columns, block)) for columns, block in [*CUT, UNEVEN]},
    "released": (sharded_lion.released, ()),
    "cut twice": (sharded_lion.cut_twice, ()),
    "exchanging": (sharded_lion.released_with_exchanges, ()),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Any]]:
    """What a job gave, by rank."""
    folder = tmp_path_factory.mktemp("sharded")
    multiprocessing.spawn(sharded_lion.in_one_start, (2, folder, JOBS), nprocs=2)
    return lambda job: [torch.load(folder / f"{job} {rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("number", range(len(STEPPED)), ids=[f"{placement}-{o}" for placement, o in STEPPED])
def test_two_processes_take_the_steps_of_one(found, number):
    _, options = STEPPED[number]
    expected = sharded_lion.alone(options, options["dtype"])
    for after in found(f"stepped {number}"):
        for mine, its in zip(expected, after, strict=True):
            assert torch.equal(mine, its)


@pytest.mark.parametrize(("columns", "block"), CUT)
def test_8_bit_momentum_that_is_cut_anew_is_what_it_was(found, columns, block):
    """As of a checkpoint that goes on with another number of ranks to a row, whose edges lie within blocks."""
    for mine, expected in found(f"cut {columns} {block}"):
        assert torch.equal(mine, expected)


def test_8_bit_momentum_that_cannot_be_cut_is_refused(found):
    for said in found("cut {} {}".format(*UNEVEN)):
        assert "blocks of 96 of 96 columns cannot be cut into rows of 48: leave parallel." in said


def test_released_steps_of_a_fully_sharded_model_equal_ordinary_ones(found):
    for during, after in found("released"):
        assert all(torch.equal(a, b) for a, b in zip(during, after, strict=True))


def test_muon_tells_that_it_takes_no_matrices_that_are_cut_twice(found):
    for said in found("cut twice"):
        assert said.startswith("train.optimizer: muon needs whole matrices, and with parallel.tensor they are cut")


def test_steps_in_which_processes_meet_are_not_released(found):
    """Each process has its gradients in an order of its own: they would wait for each other."""
    for said in found("exchanging"):
        assert said.startswith("train.release_gradients: processes exchange matrices in a step of Muon")
