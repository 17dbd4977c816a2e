from __future__ import annotations

import pytest
import torch

from kosmos.errors import ConfigError
from kosmos.testing.fake_gpu import CUDA, fake_gpu
from kosmos.train.optim.adamw import MasterAdamW
from kosmos.train.optimizers import adamw, muon
from support.steps import state_bytes, stepped


def test_fp32_parameters_beside_bf16_ones_take_pytorchs_steps():
    def ours(parameters):
        return MasterAdamW([torch.nn.Parameter(torch.ones(2).bfloat16()), *parameters], lr=1e-2, weight_decay=0.1)

    mine, _ = stepped(ours)
    theirs, _ = stepped(lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1, fused=True))
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize(("master", "size"), [("stochastic", 8), ("bits8", 9), ("bits16", 10)])
def test_its_state_is_two_means_in_fp32_and_the_bits(master, size):
    _, optimizer = stepped(lambda p: MasterAdamW(p, master=master), steps=1, dtype=torch.bfloat16)
    assert state_bytes(optimizer) == size


@pytest.mark.parametrize("master", ["stochastic", "bits8"])
def test_a_state_dict_keeps_its_dtypes(master):
    parameters, optimizer = stepped(lambda p: MasterAdamW(p, master=master), steps=2, dtype=torch.bfloat16)
    saved = optimizer.state_dict()
    other = MasterAdamW([torch.nn.Parameter(p.detach().clone()) for p in parameters], master=master)
    other.load_state_dict(saved)
    for mine, its in zip(optimizer.state.values(), other.state.values(), strict=True):
        assert mine.keys() == its.keys()
        tensors = [k for k, v in mine.items() if isinstance(v, torch.Tensor)]
        assert all(mine[k].dtype is its[k].dtype and torch.equal(mine[k], its[k]) for k in tensors)


@pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch knows no CUDA")
@pytest.mark.parametrize("master", ["stochastic", "bits8", "bits16"])
def test_its_step_on_a_gpu_waits_for_nothing(master):
    with fake_gpu() as gpu:
        parameters = [torch.nn.Parameter(torch.zeros(n, device=CUDA, dtype=torch.bfloat16)) for n in (300, 7)]
        optimizer = MasterAdamW(parameters, master=master)
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            optimizer.step()
    assert gpu.waits == []


@pytest.mark.parametrize("make", [adamw, muon])
@pytest.mark.parametrize(("option", "value"), [("betas", (0.9, 1.0)), ("betas", (-0.1, 0.9)), ("eps", -1.0)])
def test_means_that_adamw_cannot_step_by_are_named(make, option: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^train\.optimizer\.{option}: expected "):
        make([], 1e-3, **{option: value})
