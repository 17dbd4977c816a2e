from __future__ import annotations

import pytest
import torch
from torch import nn

from kosmos_video.convolutions import FewFramesConv3d, pad_few_frames


def run(convolution: nn.Module, clips: torch.Tensor, *, bf16: bool) -> list[torch.Tensor]:
    """The result and the gradients of clips and weights."""
    for parameter in convolution.parameters():
        parameter.grad = None
    clips = clips.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        made = convolution(clips)
    made.float().square().mean().backward()
    return [made.detach().float(), clips.grad, *(p.grad for p in convolution.parameters())]


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
@pytest.mark.parametrize("frames", [1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize(("space", "groups"), [(1, 1), (3, 1), (3, 16)])
def test_gradients_in_bf16_are_those_of_fp32_for_any_number_of_frames(kernel, frames, space, groups):
    torch.manual_seed(0)
    shape = (kernel, space, space)
    plain = nn.Conv3d(16, 32, shape, padding=tuple(k // 2 for k in shape), groups=groups)
    model = nn.Sequential(plain)
    expected = run(model, clips := torch.randn(2, 16, frames, 6, 6), bf16=False)
    pad_few_frames(model)
    assert type(model[0]) is FewFramesConv3d and model[0] is plain
    assert all(torch.equal(a, b) for a, b in zip(expected, run(model, clips, bf16=False), strict=True))
    for got, wanted in zip(run(model, clips, bf16=True), expected, strict=True):
        assert (got - wanted).abs().max() <= 0.03 * wanted.abs().max()  # bf16 rounds by 0.004


@pytest.mark.parametrize("frames", [5, 6, 7])
def test_gradients_in_fp32_with_strides_in_time_are_those_of_fp64(frames):
    """By torch alone the first ends the process."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv3d(16, 32, (7, 3, 3), stride=(2, 1, 1), padding=(3, 1, 1)))
    pad_few_frames(model)
    clips = torch.randn(2, 16, frames, 6, 6)
    got = run(model, clips, bf16=False)
    for ours, wanted in zip(got, run(model.double(), clips.double(), bf16=False), strict=True):
        assert (ours - wanted).abs().max() <= 1e-5 * wanted.abs().max()
