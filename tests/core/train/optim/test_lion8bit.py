from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kosmos.train.optim import blocks
from kosmos.train.optim.lion import Lion
from kosmos.train.optim.noise import noise_key
from support.steps import state_bytes


def coded(value: Tensor, block: int, noise: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Codes and scales of a momentum, and what they give back."""
    codes, scales = torch.zeros(len(value), dtype=torch.int8), torch.zeros(len(value) // block)
    spare, bits = torch.empty_like(value), torch.empty(len(value), dtype=torch.int32)
    blocks.encode(value.clone(), codes, scales, spare, bits, noise=noise, start=0)
    back = torch.empty_like(value)
    blocks.decode(codes, scales, back, spare)
    return codes, scales, back


def many_scales() -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(64 * 192, generator=random) * torch.logspace(-6, 6, 64).repeat_interleave(192)


def test_a_momentum_comes_back_within_a_code():
    value = many_scales()
    _, scales, back = coded(value, 192)
    share, got = (t.view(-1, 192) / scales[:, None] for t in (value, back))
    width = (1 + share.abs()) ** 2 / 254  # of a code, at the share: the curve's slope is 254 / (1 + |x|)**2
    assert ((got - share).abs() / width).max() < 1.01  # measured: 1.001, where the curve bends within a code
    assert torch.equal(scales, value.view(-1, 192).abs().amax(1))


def test_a_momentum_is_right_in_the_mean():
    value, rounds = many_scales(), 400
    mean = sum(coded(value, 192, noise_key(0, 0, i))[2].view(-1, 192) for i in range(rounds)) / rounds
    off = (mean - value.view(-1, 192)) / value.view(-1, 192).abs().amax(1, keepdim=True)
    # A code is up to 4 / 254 wide and a rounding spreads by half of it: over the rounds, 0.0004.
    assert off.abs().max() < 5 * 0.0004
    assert off.mean().abs() < 1e-5  # measured: 2e-6


@pytest.mark.parametrize("tiny", [0.0, 1e-44, 1e-33])
def test_a_block_of_next_to_nothing_is_zero_and_finite(tiny):
    codes, scales, back = coded(torch.full((64,), tiny), 64)
    assert not codes.any() and scales.isfinite().all() and not back.any()


def test_zeros_stay_zeros_and_the_largest_stays_itself():
    value = torch.zeros(64)
    value[3] = -0.7
    for step in range(50):
        _, _, value = coded(value, 64, noise_key(0, 0, step))
    assert value[3] == -torch.tensor(0.7) and value.count_nonzero() == 1


@pytest.mark.parametrize(
    ("shape", "block"),
    [((4096, 384), 192), ((10, 1024), 256), ((8, 240), 240), ((4, 3, 16, 16), 256), ((5, 1000), 250), ((7, 65), 65),
     ((1000,), None), ((512, 32), None), ((6, 257), None), ((0, 256), None), ((), None)],
)  # fmt: skip
def test_blocks_fill_rows_without_a_rest(shape, block):
    assert blocks.block_of(torch.zeros(shape), 256) == block


def test_the_whole_state_of_a_language_model_is_1_1_bytes_a_parameter_at_most():
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 688), 2, enable_nested_tensor=False)
    model = nn.ModuleList([nn.Embedding(512, 256), layers, nn.Linear(256, 512)])
    optimizer = Lion(model.parameters(), block=256)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert state_bytes(optimizer) <= 1.1  # measured: 1.02


def losses_of_a_noisy_rule(block: int | None, steps: int) -> Tensor:
    """A small network learns which symbol follows which; the loss of every step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(64, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    optimizer = Lion(model.parameters(), lr=1e-3, weight_decay=0.1, block=block)
    random, losses = torch.Generator().manual_seed(1), []
    for step in range(steps):
        symbols = torch.randint(64, (256,), generator=random)
        following = (symbols * 7 + (torch.rand(256, generator=random) < 0.1)) % 64
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - step / steps)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(symbols), following)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def test_the_loss_curve_is_that_of_fp32_lion():
    full, eight = (losses_of_a_noisy_rule(block, 200).unfold(0, 20, 1).mean(1) for block in (None, 256))
    assert full[-1] < 0.2 * full[0]
    assert ((eight / full) - 1).abs().max() < 0.01  # measured: 0.003, in the mean 0.001
