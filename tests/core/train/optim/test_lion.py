from __future__ import annotations

import pytest
import torch
from lion_pytorch import Lion as PeerLion
from torch import nn

from kosmos.errors import CheckpointError
from kosmos.train.optim.lion import Lion
from kosmos.train.optim.passes import CPU_ELEMENTS
from support.steps import give_gradients, stepped

SETTINGS = {"lr": 1e-3, "weight_decay": 0.1}


def test_fp32_steps_equal_those_of_lion_pytorch_to_the_bit():
    shapes = ((300, 192), (65,), (), (3 * 2 * CPU_ELEMENTS * torch.get_num_threads() + 17,))  # the last in four parts
    ours, our_optimizer = stepped(lambda p: Lion(p, **SETTINGS), shapes=shapes)
    theirs, their_optimizer = stepped(lambda p: PeerLion(p, **SETTINGS), shapes=shapes)
    for mine, its in zip(ours, theirs, strict=True):
        assert torch.equal(mine, its)
        assert torch.equal(our_optimizer.state[mine]["exp_avg"], their_optimizer.state[its]["exp_avg"])


def test_a_bf16_step_is_the_fp32_step_rounded_once():
    (ours,), _ = stepped(lambda p: Lion(p, **SETTINGS), steps=1, dtype=torch.bfloat16, shapes=[(300, 192)])
    random = torch.Generator().manual_seed(0)
    start = (torch.randn((300, 192), generator=random) * 0.05).bfloat16().float()
    gradient = torch.randn((300, 192), generator=random)
    assert torch.equal(ours, (start * (1 - 1e-4) - 1e-3 * gradient.sign()).bfloat16())


def test_parameters_in_any_layout_take_the_same_steps():
    random = torch.Generator().manual_seed(0)
    values = torch.randn(40, 30, 3, 3, generator=random)
    plain, last = nn.Parameter(values.clone()), nn.Parameter(values.to(memory_format=torch.channels_last))
    turned = nn.Parameter(values.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0))
    assert not last.is_contiguous() and not turned.is_contiguous()
    optimizer = Lion([plain, last, turned], **SETTINGS, block=64)
    for _ in range(5):
        give_gradients([plain], random)
        last.grad = plain.grad.to(memory_format=torch.channels_last)
        turned.grad = plain.grad.clone()
        optimizer.step()
    assert torch.equal(plain, last) and torch.equal(plain, turned)


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
