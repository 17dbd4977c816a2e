"""Where a forward pass is interrupted: in dozens of equal layers at three of them, and nowhere less."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kosmos.testing.interrupted import undisturbed
from kosmos.testing.promise import BrokenPromise


class Adds(nn.Module):
    """Adds what it is given to x; ``keeps``: by way of itself, where another row may put its own."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.keeps, self.weight, self.rest = keeps, nn.Parameter(torch.ones(4)), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if not self.keeps:
            return self.rest(x) * self.weight + x
        self.kept = x
        self.rest(x)
        return self.kept * self.weight + x


def check(model: nn.Module) -> None:
    one, other = (torch.randn(1, 4, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    undisturbed(model, partial(model, one), partial(model, other), "the features")


@pytest.mark.parametrize("place", [0, 1, 11])
def test_the_first_two_of_equal_layers_and_the_last_are_interrupted(place: int) -> None:
    with pytest.raises(BrokenPromise, match="another row in between changes the features"):
        check(nn.Sequential(*(Adds(keeps=number == place) for number in range(12))))


def test_a_layer_that_is_called_again_and_again_is_interrupted() -> None:
    with pytest.raises(BrokenPromise, match="another row in between changes the features"):
        check(nn.Sequential(*[Adds(keeps=True)] * 4))


def test_a_part_that_layers_share_is_interrupted() -> None:
    shared = Adds(keeps=True)
    with pytest.raises(BrokenPromise, match="another row in between changes the features"):
        check(nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), shared) for _ in range(6))))


def test_of_dozens_of_equal_layers_most_are_left_alone() -> None:
    model = nn.Sequential(*(Adds(keeps=False) for _ in range(12)))
    calls: list[Any] = []
    one = torch.ones(1, 4)
    undisturbed(model, partial(model, one), lambda: calls.append(1) or one, "the features")
    assert len(calls) == 1 + 2 * (
        1 + 3 * 2
    )  # before the backward pass, and around the model and two modules of three layers
