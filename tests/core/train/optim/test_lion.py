from __future__ import annotations

import pytest
import torch
from lion_pytorch import Lion as PeerLion
from torch import nn

from kosmos.errors import CheckpointError
from kosmos.train.optim import passes
from kosmos.train.optim.lion import Lion
from kosmos.train.optim.passes import Batch
from support.steps import give_gradients, stepped, threads_of_torch

SETTINGS = {"lr": 1e-3, "weight_decay": 0.1}


SHAPES = ((300, 192), (65,), (), (1_200_017,))
"""The first three are small enough to be taken together, the last is taken in four parts."""


@pytest.mark.parametrize("threads", [1, 2])
def test_fp32_steps_are_those_of_lion_pytorch_but_for_rounding(monkeypatch, threads):
    monkeypatch.setattr(passes, "CPU_ELEMENTS", 400_000 // threads)
    with threads_of_torch(threads):
        ours, our_optimizer = stepped(lambda p: Lion(p, **SETTINGS), shapes=SHAPES)
    theirs, their_optimizer = stepped(lambda p: PeerLion(p, **SETTINGS), shapes=SHAPES)
    for mine, its in zip(ours, theirs, strict=True):
        apart = (mine - its).detach().abs()
        assert (apart > 1e-7).sum() <= 1e-5 * apart.numel()  # by roundings; measured: 1 in 800,000
        momenta = (o.state[p]["exp_avg"] for o, p in ((our_optimizer, mine), (their_optimizer, its)))
        assert torch.allclose(*momenta, rtol=0, atol=2e-7)  # of up to 0.5; measured: 3e-8


@pytest.mark.parametrize("size", [57_600, 65, 1, 70_001])
@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.0, 0.5)], ids=str)
def test_a_bf16_step_is_the_exact_step_rounded_once(size, betas):
    (ours,), _ = stepped(lambda p: Lion(p, **SETTINGS, betas=betas), steps=1, dtype=torch.bfloat16, shapes=[(size,)])
    random = torch.Generator().manual_seed(0)
    start = (torch.randn(size, generator=random) * 0.05).bfloat16().double()
    gradient = torch.randn(size, generator=random)
    exact = start * (1 - 1e-4) - 1e-3 * gradient.sign()
    half = (exact.bfloat16().double().frexp().exponent - 9).double().exp2()  # of the distance to the next number
    assert ((ours.detach().double() - exact).abs() <= half * (1 + 2**-14)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_small_parameters_taken_together_take_the_steps_that_each_takes_alone(dtype, monkeypatch):
    monkeypatch.setattr(Batch, "MOST", 100_000 // torch.get_num_threads())
    shapes = [(300, 192), (65,), (), (64, 3, 5, 5), (1000,)] * 4  # more elements than one batch takes
    together, _ = stepped(lambda p: Lion(p, **SETTINGS), dtype=dtype, shapes=shapes)
    monkeypatch.setattr(Batch, "SMALL", 0)
    alone, _ = stepped(lambda p: Lion(p, **SETTINGS), dtype=dtype, shapes=shapes)
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


def test_small_parameters_of_two_types_in_one_group_all_move():
    parameters = [nn.Parameter(torch.ones(300, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    Lion(parameters, 0.25).step()
    assert all((parameter == 0.75).all() for parameter in parameters)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_zeros_of_either_sign_move_nothing(dtype, beta):
    parameter = nn.Parameter(torch.ones(Batch.SMALL + 64, dtype=dtype))
    small = nn.Parameter(torch.ones(64, dtype=dtype))
    optimizer = Lion([parameter, small], lr=0.1, betas=(beta, 0.99))
    for zero in (-0.0, 0.0, -0.0):
        parameter.grad, small.grad = torch.full_like(parameter, zero), torch.full_like(small, zero)
        optimizer.step()
    assert (parameter == 1).all() and (small == 1).all()


@pytest.mark.parametrize("block", [None, 64])
def test_parameters_in_any_layout_take_the_same_steps(block):
    random = torch.Generator().manual_seed(0)
    values = torch.randn(40, 30, 3, 3, generator=random)
    plain, last = nn.Parameter(values.clone()), nn.Parameter(values.to(memory_format=torch.channels_last))
    turned = nn.Parameter(values.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0))
    other = nn.Parameter(values.clone())
    assert not last.is_contiguous() and not turned.is_contiguous()
    optimizer = Lion([plain, last, turned, other], **SETTINGS, block=block)
    for _ in range(5):
        give_gradients([plain], random)
        last.grad = plain.grad.to(memory_format=torch.channels_last)
        turned.grad = plain.grad.clone()
        other.grad = plain.grad.to(memory_format=torch.channels_last)
        optimizer.step()
    assert torch.equal(plain, last) and torch.equal(plain, turned) and torch.equal(plain, other)


@pytest.mark.parametrize("gradient", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("momentum", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [640, Batch.SMALL + 1])
def test_bf16_weights_take_gradients_and_momenta_of_either_dtype(gradient, momentum, size):
    random = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.ones(size, dtype=torch.bfloat16))
    optimizer = Lion([weight], 0.125)
    mean, slope = (torch.randn(size, generator=random).bfloat16() for _ in range(2))
    optimizer.state[weight]["exp_avg"] = mean.to(momentum, copy=True)
    weight.grad_dtype = None
    weight.grad = slope.to(gradient, copy=True)
    optimizer.step()
    exact = mean.double() * 0.9 + slope.double() * 0.1
    clear = exact.abs() > 1e-6  # one sum of these is 0 but for rounding
    assert torch.equal(weight.detach().double()[clear], 1 - 0.125 * exact.sign()[clear])
    assert clear.sum() >= size - 1
    kept = optimizer.state[weight]["exp_avg"]
    assert kept.dtype is momentum
    assert torch.allclose(kept.double(), mean.double() * 0.99 + slope.double() * 0.01, rtol=2**-8, atol=1e-6)


def test_where_gradient_and_momentum_are_zero_only_decay_moves_the_weight():
    parameter = nn.Parameter(torch.ones(4, 64))
    optimizer = Lion([parameter], lr=0.1, weight_decay=0.5, block=64)
    parameter.grad = torch.zeros(4, 64)
    optimizer.step()
    assert torch.equal(parameter.detach(), torch.full((4, 64), 1 - 0.1 * 0.5))


def test_parameters_without_gradient_or_elements_are_left_alone():
    still, empty = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(0, 64))
    empty.grad = torch.ones(0, 64)
    optimizer = Lion([still, empty], **SETTINGS, block=64)
    optimizer.step()
    assert torch.equal(still.detach(), torch.ones(3))
    assert still not in optimizer.state


def test_a_closure_is_called_with_gradients_and_its_loss_returned():
    parameter = nn.Parameter(torch.tensor([2.0]))
    optimizer = Lion([parameter], lr=0.5)

    def loss():
        (parameter**2).backward()
        return 4.0

    assert optimizer.step(loss) == 4.0
    assert parameter.item() == 1.5


@pytest.mark.parametrize(
    "options",
    [{}, {"block": 64}, {"master": "stochastic"}, {"master": "bits8"}, {"block": 64, "master": "bits16"}],
    ids=str,
)
def test_a_state_dict_goes_on_bit_for_bit(options):
    def make(parameters):
        return Lion(parameters, **SETTINGS, **options)

    whole, _ = stepped(make, steps=6, dtype=torch.bfloat16)
    half, optimizer = stepped(make, steps=3, dtype=torch.bfloat16)
    saved, random = optimizer.state_dict(), torch.Generator().manual_seed(0)
    others = [nn.Parameter(p.detach().clone()) for p in half]
    resumed = make(others)
    resumed.load_state_dict(saved)
    for parameter in others:
        torch.randn(parameter.shape, generator=random)  # the weights
    for step in range(6):
        give_gradients(others, random)
        if step >= 3:
            resumed.step()
    assert all(torch.equal(a, b) for a, b in zip(whole, others, strict=True))


def test_the_state_of_another_optimizer_is_refused_by_its_names():
    _, eight = stepped(lambda p: Lion(p, block=64), steps=1, shapes=[(4, 64)])
    plain = Lion([nn.Parameter(torch.zeros(4, 64))])
    plain.load_state_dict(eight.state_dict())
    (parameter,) = plain.param_groups[0]["params"]
    parameter.grad = torch.ones(4, 64)
    with pytest.raises(CheckpointError, match=r"holds codes, scales, step, Lion keeps exp_avg: it is of another"):
        plain.step()
