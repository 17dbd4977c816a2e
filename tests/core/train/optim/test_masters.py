from __future__ import annotations

import pytest
import torch
from torch import nn

from kosmos.train.optim import masters
from kosmos.train.optim.adamw import MasterAdamW
from kosmos.train.optim.lion import Lion
from kosmos.train.optim.noise import noise_key, random_bits

STEPS, RATE, ELEMENTS = 200, 1e-5, 64 * 1024
"""Steps of 1e-5 from 1.0: the next bf16 numbers are 1 - 2**-8 and 1 + 2**-7, so that each alone is rounded away."""


def weights_after_tiny_steps(make) -> torch.Tensor:
    parameter = nn.Parameter(torch.ones(64, ELEMENTS // 64, dtype=torch.bfloat16))
    optimizer = make([parameter])
    for _ in range(STEPS):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    return parameter.detach().double()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: Lion(p, RATE, master="stochastic"),
        lambda p: Lion(p, RATE, master="stochastic", block=256),
        lambda p: MasterAdamW(p, RATE, master="stochastic"),
    ],
    ids=["lion", "lion8bit", "adamw"],
)
def test_stochastic_rounding_loses_no_update_in_the_mean(make):
    mean = weights_after_tiny_steps(make).mean().item()
    # A weight of 1 - 0.002 lies 0.51 of the way to 1 - 2**-8: its spread is 0.002, that of the mean 0.002 / 256.
    assert mean == pytest.approx(1 - STEPS * RATE, abs=5 * 0.002 / ELEMENTS**0.5)


def test_plain_bf16_loses_all_of_those_updates():
    assert (weights_after_tiny_steps(lambda p: Lion(p, RATE)) == 1).all()


@pytest.mark.parametrize(("master", "spacing"), [("bits16", 2**-24), ("bits8", 2**-16)])
def test_extra_bits_keep_every_update(master, spacing):
    parameter = nn.Parameter(torch.ones(1000, dtype=torch.bfloat16))
    optimizer = Lion([parameter], 3e-5, master=master)
    for _ in range(STEPS):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    value = whole(parameter, optimizer)
    assert (value.double() - (1 - STEPS * 3e-5)).abs().max() <= STEPS * spacing / 2
    assert torch.equal(parameter.detach(), value.bfloat16())


def whole(parameter, optimizer) -> torch.Tensor:
    out = torch.empty(parameter.numel())
    low = optimizer.state[parameter]["low"].view(-1)
    masters.load(parameter.detach().view(-1), low, out, torch.empty(len(out), dtype=torch.int32))
    return out


def test_lion_with_16_extra_bits_is_fp32_lion_to_the_bit():
    random = torch.Generator().manual_seed(0)
    values = torch.randn(5000, generator=random).bfloat16()
    full, low = nn.Parameter(values.float()), nn.Parameter(values.clone())
    exact, mixed = Lion([full], 1e-3, weight_decay=0.1), Lion([low], 1e-3, weight_decay=0.1, master="bits16")
    for _ in range(30):
        gradient = torch.randn(5000, generator=random).bfloat16()
        full.grad, low.grad = gradient.float(), gradient
        exact.state[full]["exp_avg"] = mixed.state[low]["exp_avg"].float() if low in mixed.state else torch.zeros(5000)
        exact.step()
        mixed.step()
    assert torch.equal(whole(low, mixed), full.detach())


def test_adamw_with_16_extra_bits_is_pytorchs_in_fp32():
    random = torch.Generator().manual_seed(0)
    values = torch.randn(70_000, generator=random).bfloat16()
    full, low = nn.Parameter(values.float()), nn.Parameter(values.clone())
    options = {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.1}
    exact, mixed = torch.optim.AdamW([full], fused=True, **options), MasterAdamW([low], master="bits16", **options)
    for _ in range(10):
        gradient = torch.randn(70_000, generator=random).bfloat16()
        full.grad, low.grad = gradient.float(), gradient
        exact.step()
        mixed.step()
    assert torch.equal(whole(low, mixed), full.detach())


def test_random_bits_are_even_and_differ_by_place_parameter_step_and_seed():
    spare = torch.empty(65_536, dtype=torch.int32)
    keys = [noise_key(*k) for k in ((0, 0, 1), (0, 0, 2), (0, 1, 1), (1, 0, 1))]
    drawn = torch.stack([random_bits(key, 0, torch.empty_like(spare), spare) for key in keys]).double()
    assert drawn.min() >= 0 and drawn.max() <= 65_535
    # Of 65,536 even numbers: the mean spreads by 65,536 / sqrt(12 * 65,536) = 74, a correlation by 1 / 256.
    assert (drawn.mean(1) - 32_767.5).abs().max() < 5 * 74
    assert (drawn.view(4, 256, 256).mean(2) - 32_767.5).abs().max() < 6 * 74 * 16
    assert (torch.corrcoef(drawn) - torch.eye(4)).abs().max() < 5 / 256
    assert abs(torch.corrcoef(torch.stack([drawn[0, 1:], drawn[0, :-1]]))[0, 1]) < 5 / 256


def test_random_bits_of_a_part_are_those_of_its_places():
    spare, key = torch.empty(100, dtype=torch.int32), noise_key(0, 5, 9)
    whole_row = random_bits(key, 0, torch.empty_like(spare), spare).clone()
    part = random_bits(key, 40, torch.empty(60, dtype=torch.int32), spare[:60])
    shard = random_bits(noise_key(0, 5, 9, 40), 0, torch.empty(60, dtype=torch.int32), spare[:60])
    assert torch.equal(part, whole_row[40:]) and torch.equal(shard, whole_row[40:])


def test_each_weight_is_rounded_up_as_often_as_its_rest_says():
    rests = torch.linspace(0, 1, 9)[:-1].repeat_interleave(8192)
    value = (1 + rests / 128) * torch.tensor([1.0, -1.0]).repeat(len(rests) // 2)
    weight = torch.empty(len(value), dtype=torch.bfloat16)
    spares = torch.empty(2, len(value), dtype=torch.int32)
    masters.store(weight, None, value.clone(), spares[0], spares[1], noise=noise_key(0, 0, 1), start=0)
    ups = ((weight.double().abs() - 1) * 128).view(8, 8192)
    assert set(ups.unique().tolist()) <= {0.0, 1.0}
    assert (ups.mean(1) - torch.linspace(0, 1, 9)[:-1]).abs().max() < 5 * 0.5 / 8192**0.5
