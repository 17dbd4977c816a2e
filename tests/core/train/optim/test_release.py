from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kosmos.errors import ConfigError
from kosmos.testing.fake_gpu import CUDA, fake_gpu
from kosmos.train.optim.adamw import MasterAdamW
from kosmos.train.optim.lion import Lion
from kosmos.train.optim.muon import Muon
from kosmos.train.optim.release import GradientRelease, check_release

STEPS = 4

OPTIMIZERS = {
    "lion": lambda p: Lion(p, 1e-3, weight_decay=0.1),
    "lion8bit": lambda p: Lion(p, 1e-3, weight_decay=0.1, block=64),
    "lion, stochastic": lambda p: Lion(p, 1e-3, weight_decay=0.1, master="stochastic"),
    "adamw of torch": lambda p: torch.optim.AdamW(p, 1e-3, fused=True),
    "muon": lambda p: Muon(p, 1e-3),
    "adamw, bits": lambda p: MasterAdamW(p, 1e-3, master="bits8"),
    "adamw, bits, compiled": lambda p: MasterAdamW(p, 1e-3, master="bits16", compile=True),
}


class Tied(nn.Module):
    """A small language model whose embeddings are its head: gradients of one weight from two places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 64)
        self.body = nn.TransformerEncoderLayer(64, 2, 96, dropout=0.0, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.body(self.embed(ids)) @ self.embed.weight.T


def small_model(dtype: torch.dtype = torch.float32) -> Tied:
    torch.manual_seed(0)
    return Tied().to(dtype)


def backward(model: Tied, step: int) -> float:
    """A backward pass; the norm of what gradients it leaves."""
    ids = torch.randint(64, (2, 12), generator=torch.Generator().manual_seed(step))
    F.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten()).backward()
    return float(sum(p.grad.float().square().sum() for p in model.parameters() if p.grad is not None) ** 0.5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_released_steps_equal_ordinary_ones_bit_for_bit(name):
    dtype = torch.bfloat16 if "stochastic" in name or "bits" in name else torch.float32
    ordinary, released = small_model(dtype), small_model(dtype)
    optimizer = OPTIMIZERS[name](ordinary.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        backward(ordinary, step)
        optimizer.step()
    with GradientRelease(OPTIMIZERS[name](released.parameters())) as release:
        for step in range(STEPS):
            assert backward(released, step) == 0  # nothing is left
            release.finish()
    assert all(p.grad is None for p in released.parameters())
    for mine, its in zip(ordinary.parameters(), released.parameters(), strict=True):
        assert torch.equal(mine, its)


def test_the_norm_is_that_of_all_gradients():
    model = small_model()
    expected = backward(model, 0)
    model.zero_grad()
    with GradientRelease(Lion(model.parameters(), 0.0)) as release:
        backward(model, 0)
        assert float(release.finish()) == pytest.approx(expected, rel=1e-6)
        backward(model, 0)
        assert float(release.finish()) == pytest.approx(expected, rel=1e-6)


def test_a_parameter_that_a_row_did_not_use_takes_its_step_with_zeros():
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    with GradientRelease(Lion([used, unused], 0.1, weight_decay=0.5)) as release:
        used.sum().backward()
        release.finish()
    assert torch.equal(unused.detach(), torch.full((3,), 1 - 0.1 * 0.5))
    assert unused.grad is None


def test_each_group_keeps_its_own_settings_and_new_rates_count():
    slow, fast = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = Lion([{"params": [slow], "lr": 0.0}, {"params": [fast], "lr": 0.5}])
    with GradientRelease(optimizer) as release:
        (slow + fast).backward()
        release.finish()
        optimizer.param_groups[0]["lr"] = 0.25
        (slow + fast).backward()
        release.finish()
    assert (slow.item(), fast.item()) == (0.75, 0.0)


def test_after_its_end_gradients_stay():
    parameter = nn.Parameter(torch.ones(1))
    with GradientRelease(Lion([parameter], 0.5)):
        pass
    parameter.sum().backward()
    assert parameter.grad is not None and parameter.item() == 1


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"clip_norm": 1.0}, r"train\.clip_norm 1 needs the norm of all of them; set train\.clip_norm to null"),
        ({"rows_per_step": 4}, r"adds up those of 4 rows on a process; set data\.lanes to 1"),
        ({"rows_per_step": 2, "world_size": 8, "is_sharded": True}, r"set data\.lanes to 8"),
        (
            {"world_size": 2, "is_sharded": True, "is_offloaded": True},
            r"parallel\.offload .*; leave one out",
        ),
        ({"world_size": 2}, r"freed before 2 processes could add theirs up; shard the model"),
    ],
)
def test_what_forbids_it_is_one_line(settings, line):
    with pytest.raises(ConfigError, match=line):
        check_release(**{"clip_norm": None, "rows_per_step": 1, **settings})


def test_one_row_a_process_without_clipping_is_let_through():
    check_release(clip_norm=None, rows_per_step=1)
    check_release(clip_norm=None, rows_per_step=1, world_size=8, is_sharded=True)


@pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch knows no CUDA")
def test_the_norm_of_released_gradients_is_left_on_the_gpu():
    with fake_gpu() as gpu:
        parameters = [nn.Parameter(torch.zeros(n, device=CUDA)) for n in (3, 5, 7)]
        with GradientRelease(torch.optim.SGD(parameters, 1e-3)) as release:
            norm = release.finish()  # all take their step with a gradient of zero
    assert norm.device == CUDA and gpu.waits == []
