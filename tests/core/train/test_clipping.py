from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from kosmos.train import gradients
from kosmos.train.optim.lion import Lion


def parameters(norm: float) -> list[nn.Parameter]:
    """Two parameters with gradients, whose common norm is ``norm``, and one without between them."""
    made = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    made[0].grad = torch.tensor([2.0, 3.0, 6.0]) * (norm / math.sqrt(50))
    made[2].grad = torch.tensor([1.0]) * (norm / math.sqrt(50))
    return made


@pytest.mark.parametrize("norm", [0.0, 0.3, 0.999, 0.9999995, 1.0, 1.00001, 7.0, math.inf, math.nan])
@pytest.mark.parametrize("most", [1.0, 1e30])
def test_gradients_are_clipped_as_by_torch_to_the_bit(norm, most):
    ours, theirs = parameters(norm), parameters(norm)
    found, expected = float(gradients.norm_of(ours)), float(clip_grad_norm_(theirs, most))
    gradients.clip(torch.optim.SGD(ours), found, most)
    assert found == expected or (math.isnan(found) and math.isnan(expected))
    for mine, its in zip(ours, theirs, strict=True):
        assert (mine.grad is None) == (its.grad is None)
        if mine.grad is not None:
            assert torch.allclose(mine.grad, its.grad, rtol=0, atol=0, equal_nan=True)


def test_the_norm_of_bf16_gradients_is_that_of_their_values():
    made = [nn.Parameter(torch.zeros(1000, dtype=torch.bfloat16)) for _ in range(3)]
    for number, parameter in enumerate(made):
        parameter.grad = torch.randn(1000, generator=torch.Generator().manual_seed(number)).bfloat16()
    exact = math.sqrt(sum(float(p.grad.double().square().sum()) for p in made))
    assert float(gradients.norm_of(made)) == pytest.approx(exact, rel=1e-6)  # in bf16 it is off by 4e-5


def test_an_optimizer_that_scales_as_it_reads_is_told_the_factor_and_nothing_is_written():
    class Scaling(Lion):
        told = 1.0

        def scale_next(self, factor: float) -> bool:
            self.told = factor
            return True

    ours, theirs = parameters(7.0), parameters(7.0)
    optimizer = Scaling(ours)
    gradients.clip(optimizer, float(gradients.norm_of(ours)), 1.0)
    clip_grad_norm_(theirs, 1.0)
    assert ours[0].grad is not None and theirs[0].grad is not None
    assert torch.equal(ours[0].grad * optimizer.told, theirs[0].grad)


def test_without_a_limit_gradients_stay_as_they_are_even_without_end():
    ours = parameters(math.inf)
    gradients.clip(torch.optim.SGD(ours), float(gradients.norm_of(ours)), math.inf)
    assert ours[0].grad is not None and ours[0].grad.isinf().all()  # torch would make NaN of them
