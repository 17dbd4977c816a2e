"""Encoders whose random numbers do not come of the run's seed, and the promises that they break."""

from __future__ import annotations

import pytest

from .conftest import Mutate
from .test_mutants import ENCODER_INIT, LIFT, Mutant, check_caught

MUTANTS = [
    Mutant(
        "weights by a generator that no run seeds", "encoder.py", ENCODER_INIT,
        f"import random\n\n        {ENCODER_INIT}\n        self.norm.bias.data += random.random()",
        "weights-by-seed", "norm.bias has other values when it is built again after the same seed; draw by",
    ),
    Mutant(
        "a seed of the clock", "encoder.py", ENCODER_INIT,
        f"{ENCODER_INIT}\n        import time, torch\n        torch.manual_seed(time.time_ns())",
        "weights-by-seed", "lift.0.weight has other values when it is built again after the same seed; draw by",
    ),
    Mutant(
        "a seed that is always the same", "encoder.py", ENCODER_INIT,
        f"import torch\n        torch.manual_seed(3)\n        {ENCODER_INIT}",
        "weights-by-seed", "building it leaves PyTorch's generator in one state whatever its seed was; leave",
    ),
    Mutant(
        "noise by numpy's generator in training", "encoder.py", LIFT,
        f"import numpy as np\n        {LIFT}\n        x = x + float(np.random.rand()) * self.training",
        "draws-by-seed", "it gives something else when it runs again after the same seed; draw by",
    ),
    Mutant(
        "a forward pass that seeds by the clock", "encoder.py", LIFT,
        f"import time, torch\n        torch.manual_seed(time.time_ns())\n        {LIFT}",
        "draws-by-seed", "running it twice after the same seed leaves PyTorch's generator in two states",
    ),
    Mutant(
        "a forward pass that seeds", "encoder.py", LIFT,
        f"import torch\n        torch.manual_seed(len(values))\n        {LIFT}",
        "draws-by-seed", "running it leaves PyTorch's generator in one state whatever its seed was",
    ),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_a_mutant_that_draws_is_caught_by_the_promise_that_it_breaks(mutant: Mutant, mutate: Mutate) -> None:
    check_caught(mutant, mutate)
