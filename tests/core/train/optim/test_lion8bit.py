from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kosmos.train.optim import blocks
from kosmos.train.optim.lion import Lion
from support.steps import state_bytes, stepped


def coded(value: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    codes, scales = torch.zeros(len(value), dtype=torch.int8), torch.zeros(len(value) // block)
    blocks.encode(value.clone(), codes, scales, torch.empty_like(value))
    back = torch.empty_like(value)
    blocks.decode(codes, scales, back)
    return codes, scales, back


def test_a_momentum_comes_back_within_half_a_code_of_its_block():
    value = torch.randn(64 * 192) * torch.logspace(-6, 6, 64).repeat_interleave(192)
    _, scales, back = coded(value, 192)
    error = (back - value).abs().view(-1, 192) / scales[:, None]
    assert error.max() <= 0.5 + 1e-5  # measured: 0.500003, by the rounding of the product
    assert torch.equal(scales, value.view(-1, 192).abs().amax(1) / 127)


@pytest.mark.parametrize("tiny", [0.0, 1e-44, 1e-33])
def test_a_block_of_next_to_nothing_is_zero_and_finite(tiny):
    codes, scales, back = coded(torch.full((64,), tiny), 64)
    assert not codes.any() and scales.isfinite().all() and not back.any()


@pytest.mark.parametrize(
    ("shape", "block"),
    [((4096, 384), 192), ((10, 1024), 256), ((8, 240), 240), ((4, 3, 16, 16), 256), ((5, 1000), 250), ((7, 65), 65),
     ((1000,), None), ((512, 32), None), ((6, 257), None), ((0, 256), None), ((), None)],
)  # fmt: skip
def test_blocks_fill_rows_without_a_rest(shape, block):
    assert blocks.block_of(torch.zeros(shape), 256) == block


def test_a_row_without_gradient_decays_as_in_fp32():
    parameter = nn.Parameter(torch.zeros(2, 256))
    optimizer = Lion([parameter], lr=1e-3, block=256)
    parameter.grad = torch.randn(2, 256)
    optimizer.step()
    state = optimizer.state[parameter]
    codes, scales = state["codes"].clone(), state["scales"].clone()
    parameter.grad = torch.zeros(2, 256)
    for _ in range(100):
        optimizer.step()
    assert torch.equal(state["codes"], codes)
    assert torch.allclose(state["scales"], scales * 0.99**100, rtol=1e-5)  # measured: 1e-6


def test_the_whole_state_of_a_language_model_is_1_1_bytes_a_parameter_at_most():
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 688), 2, enable_nested_tensor=False)
    model = nn.ModuleList([nn.Embedding(512, 256), layers, nn.Linear(256, 512)])
    optimizer = Lion(model.parameters(), block=256)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert state_bytes(optimizer) <= 1.1  # measured: 1.03


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
    assert ((eight / full) - 1).abs().max() < 0.01  # measured: MEASURE
