from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from kosmos.train import gradients
from kosmos.train.optim.lion import Lion
from kosmos.train.run import train_model
from support.runs import rows_of, small_run, ticks_registry


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


def test_a_run_clips_by_the_norm_that_it_logs(tmp_path, monkeypatch):
    factors: list[float] = []

    def noted(optimizer: Lion, factor: float) -> bool:
        factors.append(factor)
        return False

    monkeypatch.setattr(Lion, "scale_next", noted)
    train = {"steps": 3, "warmup_steps": 1, "precision": "fp32", "optimizer": "lion", "clip_norm": 0.01}
    train_model(small_run(tmp_path / "run", train=train), registry=ticks_registry())
    norms = [row["grad_norm"] for row in rows_of(tmp_path / "run" / "metrics.jsonl") if "grad_norm" in row]
    assert len(norms) == 3 and min(norms) > 0.01
    assert factors == pytest.approx([0.01 / norm for norm in norms], rel=1e-3)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_is_the_same_with_any_number_of_threads(threads):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        weight = nn.Parameter(torch.linspace(-1, 1, 500_000))
        weight.grad = torch.linspace(1, -2, 500_000)
        Lion([weight], 0.1, weight_decay=0.5).step()
    finally:
        torch.set_num_threads(before)
    start, slope = torch.linspace(-1, 1, 500_000), torch.linspace(1, -2, 500_000)
    assert torch.allclose(weight.detach(), start * 0.95 - 0.1 * slope.sign(), atol=1e-6)
