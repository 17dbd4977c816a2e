"""The clip encoders: items apart, nothing unused, empty input."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kosmos import ConfigError
from kosmos_video.norms import FrozenBatchNorm
from kosmos_video.pytorchvideo_encoder import PytorchVideoEncoder
from support.rebuilt import rebuilt

SMALL: list[dict[str, Any]] = [
    {"model": "resnet_tiny"},
    {"model": "x3d_tiny", "frames": 4, "size_px": 32},
    {"model": "x3d_tiny", "frames": 4, "size_px": 32, "norm": "frozen"},
    {"model": "mvit_tiny", "size_px": 32},
]


def clips(encoder: PytorchVideoEncoder, grids: Sequence[tuple[int, ...]], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random cells for the given grids."""
    cells = sum(prod(grid) for grid in grids)
    shape = (cells, 3, encoder.input.cell_frames, *encoder.input.patch_px)
    values = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return values, torch.tensor(grids, dtype=torch.int64).reshape(-1, 3)


def build(options: dict[str, Any]) -> PytorchVideoEncoder:
    """From scratch, with noise on all parameters: pytorchvideo starts residual branches at zero, which hides them."""
    torch.manual_seed(0)
    encoder = PytorchVideoEncoder(**options).train()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return encoder


@pytest.mark.parametrize("options", SMALL, ids=lambda o: "-".join(map(str, o.values())))
def test_clips_packed_together_equal_each_clip_alone(options: dict[str, Any]) -> None:
    encoder = build(options)
    own = tuple(encoder.input.grid)
    other = own if encoder.is_transformer else (own[0], own[1] + 1, own[2])
    grids = [own, other, own, own, other]
    values, grid_rows = clips(encoder, grids)
    packed = encoder(values, grid_rows)
    sizes = [prod(grid) for grid in grids]
    alone = torch.cat([encoder(v, grid_rows[i : i + 1]) for i, v in enumerate(torch.split(values, sizes))])
    assert packed.shape == (len(values), encoder.width)
    # Measured in fp32: at most 1.1e-6 of the largest feature; the order of sums in a batched convolution differs.
    assert (packed - alone).abs().max() <= 1e-5 * alone.abs().max()


@pytest.mark.parametrize("options", SMALL, ids=lambda o: "-".join(map(str, o.values())))
def test_every_parameter_gets_a_gradient(options: dict[str, Any]) -> None:
    encoder = build(options)
    features = encoder(*clips(encoder, [tuple(encoder.input.grid)] * 2))
    (features * torch.randn(features.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or name.endswith("attn.k.bias"), name  # softmax does not see a bias of the keys


@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 0.06), (torch.float16, 0.01), (torch.float64, 1e-5)])
@pytest.mark.parametrize("options", SMALL, ids=lambda o: "-".join(map(str, o.values())))
def test_an_encoder_brought_to_another_type_gives_features_of_it(
    options: dict[str, Any], dtype: torch.dtype, most: float
) -> None:
    encoder = build(options).eval()
    values, grids = clips(encoder, [tuple(encoder.input.grid)] * 2)
    expected = encoder(values, grids)
    encoder.to(dtype)
    found = encoder(values, grids)
    assert (found.dtype, encoder(*clips(encoder, [])).dtype) == (dtype, dtype)
    # Measured, of the largest feature: bf16 0.020, fp16 0.0028, fp64 1.2e-6.
    assert (found - expected).abs().max() <= most * expected.abs().max()


@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("options", SMALL, ids=lambda o: "-".join(map(str, o.values())))
def test_no_clips_give_no_features_and_zero_gradients(options: dict[str, Any], bf16: bool) -> None:
    encoder = build(options)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        features = encoder(*clips(encoder, []))
    assert features.shape == (0, encoder.width)
    features.float().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name


@pytest.mark.parametrize("options", [SMALL[0], SMALL[3]], ids=["resnet", "mvit"])
def test_gradient_checkpointing_changes_no_gradient(options: dict[str, Any]) -> None:
    encoder = build(options)
    values, grids = clips(encoder, [tuple(encoder.input.grid)])
    encoder(values, grids).square().sum().backward()
    plain = [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
    encoder.zero_grad()
    encoder.set_gradient_checkpointing(True)
    encoder(values, grids).square().sum().backward()
    for before, parameter in zip(plain, encoder.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, before)


def test_no_batch_norm_stays() -> None:
    for options in SMALL:
        kinds = {type(module) for module in build(options).modules()}
        assert not kinds & {nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d}, options


@pytest.mark.parametrize(("model", "suffix"), [("x3d_tiny", ".pt"), ("mvit_tiny", ".safetensors")])
def test_weights_of_a_local_file_are_those_of_the_encoder(model: str, suffix: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from kosmos_video.architectures import find_architecture

    torch.manual_seed(3)
    options: dict[str, Any] = {"model": model, "frames": 8, "size_px": 32}
    net = find_architecture(model).build(8, 32)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm3d):
            assert module.running_mean is not None
            module.running_mean.normal_()
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pt":
        torch.save({"model_state": net.state_dict()}, path)
    else:
        save_file(net.state_dict(), path)
    encoder = PytorchVideoEncoder(weights=str(path), **options).train()
    values, grids = clips(encoder, [tuple(encoder.input.grid)])
    features = encoder(values, grids)
    # The same clip through pytorchvideo's own network, up to its head.
    t, h, w = encoder.input.grid
    frames, ph, pw = values.shape[2:]
    film = values.reshape(t, h, w, 3, frames, ph, pw).permute(3, 0, 4, 1, 5, 2, 6).reshape(1, 3, 8, 32, 32)
    caught: list[Tensor] = []
    head: Any = net.head if encoder.is_transformer else net.blocks[-1]  # type: ignore[index]
    head.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    net.eval()((film / 255 - 0.45) / 0.225)
    expected = caught[0][0, 1:] if encoder.is_transformer else caught[0][0].permute(1, 2, 3, 0).reshape(t * h * w, -1)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)
    assert any(isinstance(m, FrozenBatchNorm) for m in encoder.modules()) != encoder.is_transformer
    path.unlink()
    again = rebuilt(encoder, weights=str(path), **options)  # as a checkpoint is loaded
    assert torch.equal(again(values, grids), features)


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    torch.save({"blocks.0.weight": torch.zeros(2)}, tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("no weights")
    for name, message in (("other.pt", "does not fit"), ("text.pt", "cannot be read"), ("absent.pt", "no such file")):
        with pytest.raises(ConfigError, match=message):
            PytorchVideoEncoder(model="x3d_tiny", weights=str(tmp_path / name))


def test_a_misspelt_model_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown video model 'x3d_tny'; did you mean x3d_tiny\?"):
        PytorchVideoEncoder(model="x3d_tny")


def test_a_clip_that_the_model_cannot_divide_is_refused() -> None:
    with pytest.raises(ConfigError, match="which does not divide them"):
        PytorchVideoEncoder(size_px=50)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "frames", "size_px", "grid", "width"),
    [
        ("x3d_xs", 4, 64, (4, 2, 2), 192),
        ("x3d_s", 4, 64, (4, 2, 2), 192),
        ("slow_r50", 2, 64, (2, 2, 2), 2048),
        ("r2plus1d_r50", 4, 64, (1, 2, 2), 2048),
        ("csn_r101", 8, 64, (1, 2, 2), 2048),
        ("mvit_base_16x4", 4, 64, (2, 2, 2), 768),
    ],
)
def test_the_known_networks_have_their_widths(
    model: str, frames: int, size_px: int, grid: tuple[int, int, int], width: int
) -> None:
    encoder = PytorchVideoEncoder(model=model, frames=frames, size_px=size_px)
    assert (tuple(encoder.input.grid), encoder.width) == (grid, width)
    features = encoder(*clips(encoder, [grid, grid]))
    assert features.shape == (2 * encoder.input.grid.cells, width)


def test_what_the_model_has_by_its_name_is_in_effect_whether_stated_or_not() -> None:
    """By which two runs are compared where one begins with the weights of the other."""
    left_out: dict[str, Any] = {"model": "x3d_tiny", "frames": None, "size_px": None, "weights": None, "norm": "auto"}
    built = PytorchVideoEncoder(model="x3d_tiny")
    stated = {**left_out, "frames": built.frames, "size_px": built.size_px, "norm": "group"}
    assert PytorchVideoEncoder.in_effect(left_out) == stated == PytorchVideoEncoder.in_effect(stated)
