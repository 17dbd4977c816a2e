from __future__ import annotations

import math
import shutil

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from kosmos.train import gradients
from kosmos.train.optim.adamw import FusedAdamW
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
    found, expected = float(gradients.norms_of([ours])[0]), float(clip_grad_norm_(theirs, most))
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
    assert float(gradients.norms_of([made])[0]) == pytest.approx(exact, rel=1e-6)  # in bf16 it is off by 4e-5


def test_an_optimizer_that_scales_as_it_reads_is_told_the_factor_and_nothing_is_written():
    class Scaling(Lion):
        told = 1.0

        def scale_next(self, factor: float) -> bool:
            self.told = factor
            return True

    ours, theirs = parameters(7.0), parameters(7.0)
    optimizer = Scaling(ours)
    gradients.clip(optimizer, float(gradients.norms_of([ours])[0]), 1.0)
    clip_grad_norm_(theirs, 1.0)
    assert ours[0].grad is not None and theirs[0].grad is not None
    assert torch.equal(ours[0].grad * optimizer.told, theirs[0].grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adamw_scales_the_gradients_of_one_step_as_it_reads_them(dtype):
    ours, theirs = ([nn.Parameter(torch.ones(2000, dtype=dtype)) for _ in range(2)] for _ in range(2))
    optimizer, reference = FusedAdamW(ours, lr=0.1), torch.optim.AdamW(theirs, lr=0.1, fused=True)
    for number in range(3):  # the second is short enough
        for mine, its in zip(ours, theirs, strict=True):
            drawn = torch.randn(2000, generator=torch.Generator().manual_seed(number)).to(dtype)
            mine.grad, its.grad = (0.001 if number == 1 else 1.0) * drawn, (0.001 if number == 1 else 1.0) * drawn
        clip_grad_norm_(theirs, 1.0)
        before = ours[0].grad.clone()
        gradients.clip(optimizer, float(gradients.norms_of([ours])[0]), 1.0)
        assert ours[0].grad.equal(before)
        optimizer.step()
        reference.step()
    tolerance = 1e-6 if dtype == torch.float32 else 2**-7  # where a clipped gradient is rounded to bf16
    for mine, its in zip(ours, theirs, strict=True):
        for a, b in (
            (mine, its),
            (optimizer.state[mine]["exp_avg_sq"].sqrt(), reference.state[its]["exp_avg_sq"].sqrt()),
        ):
            assert (a - b).norm() < tolerance * b.norm()


def test_adamw_leaves_a_factor_whose_inverse_fp32_cannot_hold_to_who_clips():
    ours = [nn.Parameter(torch.zeros(2))]
    ours[0].grad = torch.tensor([3e38, 0.0])
    optimizer = FusedAdamW(ours)
    assert not optimizer.scale_next(0.0)
    gradients.clip(optimizer, 3e38, 0.1)
    assert ours[0].grad[0] == pytest.approx(0.1, rel=1e-5)
    optimizer.step()
    assert ours[0].isfinite().all()


@pytest.mark.parametrize("compile", [True, False])
@pytest.mark.parametrize(("dtype", "block"), [(torch.float32, None), (torch.bfloat16, None), (torch.float32, 64)])
def test_lion_scales_the_gradients_of_one_step_and_no_other(dtype, block, compile):
    if compile and not shutil.which("g++") and not shutil.which("clang++"):
        pytest.skip("no C++ compiler")
    ours, theirs = ([nn.Parameter(torch.ones(64, 64, dtype=dtype))] for _ in range(2))
    optimizer, reference = (Lion(those, lr=0.01, block=block, compile=compile) for those in (ours, theirs))
    for number in range(4):
        drawn = (0.25 if number else 4.0) * torch.randn(64, 64, generator=torch.Generator().manual_seed(number))
        ours[0].grad, theirs[0].grad = drawn.to(dtype), drawn.to(dtype, copy=True)
        if number == 1:  # a power of two, by which nothing is rounded
            optimizer.scale_next(0.125)
            theirs[0].grad.mul_(0.125)
        optimizer.step()
        reference.step()
        assert ours[0].equal(theirs[0])
    for key, value in optimizer.state[ours[0]].items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(reference.state[theirs[0]][key])), key


def test_without_a_limit_gradients_stay_as_they_are_even_without_end():
    ours = parameters(math.inf)
    gradients.clip(torch.optim.SGD(ours), float(gradients.norms_of([ours])[0]), math.inf)
    assert ours[0].grad is not None and ours[0].grad.isinf().all()  # torch would make NaN of them


def test_each_part_has_a_norm_and_one_without_gradients_has_none():
    ours, alone, bare = parameters(7.0), parameters(3.0)[:2], [nn.Parameter(torch.zeros(4))]
    alone[1].grad = torch.ones(2, dtype=torch.float32)
    low = nn.Parameter(torch.zeros(5, dtype=torch.bfloat16))
    low.grad = torch.full((5,), 2.0).bfloat16()
    several = [ours, [*alone, low], bare]
    whole, *parts = gradients.norms_of(several).tolist()
    squares = [sum(float(p.grad.double().square().sum()) for p in one if p.grad is not None) for one in several]
    assert parts == pytest.approx([square**0.5 for square in squares])
    assert whole == pytest.approx(sum(squares) ** 0.5)
