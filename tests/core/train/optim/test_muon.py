"""Muon: matrices move by orthogonal steps of AdamW's size, all else by AdamW."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kosmos.errors import ConfigError
from kosmos.testing.fake_gpu import CUDA, fake_gpu
from kosmos.train.optim.masters import load
from kosmos.train.optim.muon import Muon
from kosmos.train.optim.newton_schulz import newton_schulz
from support.steps import state_bytes, stepped

SHAPES = ((300, 192), (64, 200), (300, 192), (1,), (64, 3, 5, 5), (7,))
"""Two matrices of one shape, which take their steps together, and what AdamW moves."""


@pytest.mark.parametrize("shape", [(64, 64), (32, 300), (300, 32), (3, 16, 40)])
def test_singular_values_come_near_one_and_their_vectors_stay(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = newton_schulz(matrices).double()
    left, _, right = torch.linalg.svd(matrices.double(), full_matrices=False)
    along = left.mT @ found @ right.mT
    sizes = torch.diagonal(along, dim1=-2, dim2=-1)
    assert found.shape == shape
    assert sizes.median() > 0.6 and sizes.max() < 1.3  # of the smallest of a square one less is left
    assert (along - torch.diag_embed(sizes)).abs().max() < 0.05  # bf16


def test_no_matrix_and_one_of_zeros_stay_what_they_are():
    assert newton_schulz(torch.zeros(0, 4, 6)).shape == (0, 4, 6)
    assert not newton_schulz(torch.zeros(2, 4, 6)).any()


def test_matrices_take_the_steps_of_pytorchs_muon_and_the_rest_those_of_its_adamw():
    mine, _ = stepped(lambda p: Muon(p, 1e-2, weight_decay=0.1), shapes=SHAPES)
    options = {"lr": 1e-2, "weight_decay": 0.1}

    class Both(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})
            matrices = [p for p in parameters if p.ndim == 2]
            self.parts = (
                torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw", **options),
                torch.optim.AdamW([p for p in parameters if p.ndim != 2], betas=(0.9, 0.95), fused=True, **options),
            )

        def step(self):
            for part in self.parts:
                part.step()

    theirs, _ = stepped(Both, shapes=SHAPES)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-4)  # measured 0; bf16 may be summed otherwise


def test_matrices_of_a_group_are_those_that_it_names():
    parameters = [nn.Parameter(torch.ones(4, 6)) for _ in range(2)]
    optimizer = Muon([{"params": parameters, "names": ["head", "inner"], "matrices": {"inner"}}])
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    head, inner = (set(optimizer.state[parameter]) for parameter in parameters)
    assert head == {"exp_avg", "exp_avg_sq", "step"} and inner == {"momentum"}


def test_experts_of_a_stack_move_as_each_would_alone():
    random = torch.Generator().manual_seed(0)
    whole = nn.Parameter(torch.randn(3, 16, 24, generator=random))
    alone = [nn.Parameter(one.clone()) for one in whole.detach()]
    groups = [{"params": [whole], "names": ["experts"], "matrices": {"experts"}}, {"params": alone}]
    optimizer = Muon(groups, 1e-2)
    whole.grad = torch.randn(whole.shape, generator=random)
    for one, gradient in zip(alone, whole.grad, strict=True):
        one.grad = gradient.clone()
    optimizer.step()
    torch.testing.assert_close(whole.detach(), torch.stack(alone).detach(), rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(("master", "size"), [("none", 4), ("stochastic", 4), ("bits8", 5), ("bits16", 6)])
def test_a_matrix_takes_four_bytes_of_state_and_the_bits(master, size):
    _, optimizer = stepped(lambda p: Muon(p, master=master), steps=1, dtype=torch.bfloat16, shapes=[(64, 48)])
    assert state_bytes(optimizer) == size


def test_extra_bits_keep_small_steps_of_bf16_matrices():
    exact, _ = stepped(lambda p: Muon(p, 1e-6), shapes=[(64, 48)])
    low, optimizer = stepped(lambda p: Muon(p, 1e-6, master="bits16"), dtype=torch.bfloat16, shapes=[(64, 48)])
    start, _ = stepped(lambda p: Muon(p, 1e-6), steps=0, dtype=torch.bfloat16, shapes=[(64, 48)])
    value = torch.empty(low[0].numel())
    load(low[0].detach().view(-1), optimizer.state[low[0]]["low"].view(-1), value, torch.empty_like(value).int())
    moved = value.view(64, 48) - start[0].detach().float()
    full = stepped(lambda p: Muon(p, 1e-6), steps=0, shapes=[(64, 48)])[0][0].detach()
    expected = exact[0].detach() - full
    assert (moved - expected).abs().max() < 0.05 * expected.abs().max()  # gradients are rounded to bf16 as well


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"momentum": 1.0}, r"train\.optimizer\.momentum: expected 0 or more, below 1, got 1\.0"),
        ({"steps": 0}, r"train\.optimizer\.steps: expected 1 or more, got 0"),
    ],
)
def test_a_wrong_option_is_one_line(options, line):
    with pytest.raises(ConfigError, match=line):
        Muon([nn.Parameter(torch.zeros(3, 3))], **options)


@pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch knows no CUDA")
@pytest.mark.parametrize(("dtype", "master"), [(torch.float32, "none"), (torch.bfloat16, "bits16")])
def test_its_step_on_a_gpu_waits_for_nothing(dtype, master, monkeypatch):
    monkeypatch.setattr("kosmos.train.optim.parameterwise.has_triton", lambda: False)  # AdamW's kernel has its own test
    with fake_gpu() as gpu:
        parameters = [nn.Parameter(torch.zeros(shape, device=CUDA, dtype=dtype)) for shape in SHAPES]
        optimizer = Muon(parameters, master=master)
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            optimizer.step()
    assert gpu.waits == []
